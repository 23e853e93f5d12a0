"""From records to a report. Pure: the same records give the same report for ever."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from types import MappingProxyType

from orchestrator.plan.types import Plan
from orchestrator.report import published
from orchestrator.report.searched import search_bests
from orchestrator.report.skipped import skipped
from orchestrator.report.statistics import estimate, holm, sign_flip_p
from orchestrator.report.types import ArmTally, Cell, Effect, Report
from orchestrator.trials import OutcomeKind, Record
from search_spaces.paths import lookup
from trainables.metrics import Metric, look_up

SELECTION_SPLIT = "valid"


def summarise(plan: Plan, records: Iterable[Record]) -> Report:
    """Every arm's confirm results, their paired differences to its reference, and how all trials ended."""
    known = list(records)
    confirmed = [record for record in known if record.phase == "confirm" and record.outcome is not None]
    reread = [record for record in known if record.phase == "posthoc" and record.outcome is not None]
    ended = {each.trial_id for each in known if each.outcome is not None and each.outcome.final}
    declared = _declared(plan)
    floors = _floors(declared, confirmed)
    metrics = _metrics(plan, declared, confirmed)
    about = _About({metric: look_up(declared, metric) for metric in metrics}, floors)
    arms = tuple(arm.name for arm in plan.arms)
    cells = [
        cell for arm in arms for metric in metrics if (cell := _cell(plan, arm, metric, confirmed, about))
    ]
    effects = [effect for metric in metrics for effect in _effects(plan, metric, confirmed, about)]
    return Report(
        sweep=plan.name,
        question=plan.question,
        metrics=metrics,
        cells=tuple(cells),
        posthoc=tuple(_posthoc(plan, metrics, reread, about)),
        effects=tuple(effects),
        tallies=tuple(_tally(arm, known) for arm in arms),
        floors=floors,
        arms=arms,
        power=plan.power.sentence if plan.power else "",
        quantities=tuple(dict.fromkeys(about.known.values())),
        headlines=_headlines(plan, declared, metrics),
        prior_work=tuple(published.prior_work(plan)),
        left=len({each.trial_id for each in plan.trials}.difference(ended)),
        searched=search_bests(plan, known),
        skipped=skipped(known),
        unread=_unread(plan, confirmed),
    )


@dataclass(frozen=True, slots=True)
class _About:
    """What values of metrics are judged by."""

    known: Mapping[str, Metric]
    floors: Mapping[str, float]

    def value(self, record: Record, metric: str) -> float | None:
        """The record's value; a failed trial is no better than what needs no learning, if that is known."""
        if record.outcome is OutcomeKind.FINISHED and record.last is not None:
            return record.last.metrics.get(metric)
        if record.outcome is None or not record.outcome.failed:
            return None
        if counts_as := self.known[metric].failed_as:
            return self.floors.get(f"{metric.rpartition('/')[0]}/{counts_as}", 0.0)
        return self.floors.get(metric)

    def span(self, metric: str) -> tuple[float, float]:
        """Between what values of the metric lie."""
        return self.known[metric].span

    def span_of_difference(self, metric: str) -> tuple[float, float]:
        """Between what differences of two values lie."""
        low, high = self.known[metric].span
        return low - high, high - low


def _declared(plan: Plan) -> tuple[Metric, ...]:
    """What the plan says of quantities; of plans from before it did, what the tasks and heads here say."""
    if plan.metrics or plan.trainable is not None:
        return plan.metrics
    from trainables.training.measured import metrics_of

    named = [lookup(arm.settings, "task.name") for arm in plan.arms]
    try:
        return metrics_of(dict.fromkeys(name for name in named if isinstance(name, str)))
    except (LookupError, ValueError):  # a task of others that is no longer there
        return metrics_of()


def _metrics(plan: Plan, declared: Sequence[Metric], confirmed: Sequence[Record]) -> tuple[str, ...]:
    """Metrics measured by any confirmed trial that are to be shown, quantity by quantity."""
    splits = (*(plan.confirm.splits if plan.confirm else ()), SELECTION_SPLIT)
    measured = {name for record in confirmed if record.last for name in record.last.metrics}
    found = {name.rpartition("/")[2] for name in measured if name.rpartition("/")[0] in splits}
    shown = [each for each in declared if each.shown]
    known = [each.name for each in shown if not each.split]
    others = sorted(found.difference(each.name for each in declared))
    # What a task of the box measures without declaring it is what its field goes by, such as BLEU.
    ordered = [*others, *known] if plan.trainable is None else [*known, *others]
    wanted = [f"{split}/{quantity}" for quantity in ordered for split in splits]
    wanted += [f"{each.split}/{each.name}" for each in shown if each.split]
    return tuple(name for name in dict.fromkeys(wanted) if name in measured)


def _unread(plan: Plan, confirmed: Sequence[Record]) -> tuple[str, ...]:
    """Test splits without a value though some confirm trial finished: code of others may not measure them."""
    done = [each.last.metrics for each in confirmed if each.outcome is OutcomeKind.FINISHED and each.last]
    if plan.confirm is None or not done:
        return ()
    read = {name.rpartition("/")[0] for metrics in done for name in metrics}
    return tuple(split for split in plan.confirm.splits if split not in read)


def _headlines(plan: Plan, declared: Sequence[Metric], metrics: Sequence[str]) -> tuple[str, ...]:
    """What is declared to be one, else what is searched for, else the first quantity that is declared, or
    measured."""
    quantities = [metric.rpartition("/")[2] for metric in metrics]
    if made := [each.name for each in declared if "headline" in each.shown]:
        return tuple(name for name in made if name in quantities)[:1]
    searched = [each.metric.rpartition("/")[2] for each in plan.search.objectives] if plan.search else []
    known = [each.name for each in declared if each.name in quantities]
    return tuple(dict.fromkeys(searched or [*known, *quantities][:1]))


def _floors(declared: Sequence[Metric], confirmed: Sequence[Record]) -> dict[str, float]:
    """By metric, as declared or as measured beside it."""
    floors: dict[str, float] = {}
    for record in confirmed:
        measured = record.last.metrics if record.last else {}
        for name in measured:
            known = look_up(declared, name)
            beside = measured.get(f"{name.rpartition('/')[0]}/{known.floor_from}")
            if (floor := beside if known.floor is None else known.floor) is not None:
                floors[name] = floor
    return dict(sorted(floors.items()))


def _by_seed(
    arm: str, metric: str, confirmed: Sequence[Record], about: _About
) -> dict[tuple[int, int], tuple[float, str]]:
    """(rank, seed) to value and record id."""
    found = {}
    for record in confirmed:
        value = about.value(record, metric) if record.arm == arm else None
        if value is not None:
            found[record.rank or 0, record.seed] = (value, record.trial_id)
    return dict(sorted(found.items()))


def _by_seed_alone(values: Mapping[tuple[int, int], float]) -> list[float]:
    """One value a seed: several assignments trained on one seed share its chances and are no sample."""
    found: dict[int, list[float]] = defaultdict(list)
    for (_, seed), value in values.items():
        found[seed].append(value)
    return [fmean(of_ranks) for of_ranks in found.values()]


def _cell(
    plan: Plan,
    arm: str,
    metric: str,
    confirmed: Sequence[Record],
    about: _About,
    *,
    overrides: Mapping[str, object] = MappingProxyType({}),
) -> Cell | None:
    values = _by_seed(arm, metric, confirmed, about)
    if not values:
        return None
    failed = sum(
        record.arm == arm and record.outcome is not None and record.outcome.failed for record in confirmed
    )
    alone = _by_seed_alone({key: value for key, (value, _) in values.items()})
    cell = Cell(
        arm=arm,
        metric=metric,
        estimate=estimate(alone, span=about.span(metric)),
        failed=failed,
        record_ids=tuple(trial_id for _, trial_id in values.values()),
    )
    return published.beside(plan, cell, overrides, alone)


def _posthoc(plan: Plan, metrics: Sequence[str], reread: Sequence[Record], about: _About) -> Iterator[Cell]:
    """Cells of every setting under which checkpoints were read again, in the order of the plan."""
    for arm, overrides in product(plan.arms, plan.posthoc):
        setting = ", ".join(f"{path}={value}" for path, value in overrides.items())
        own = [
            record
            for record in reread
            if record.arm == arm.name and dict(record.overrides) == dict(overrides)
        ]
        for metric in metrics:
            if cell := _cell(plan, arm.name, metric, own, about, overrides=overrides):
                yield replace(cell, setting=setting)


def _effects(plan: Plan, metric: str, confirmed: Sequence[Record], about: _About) -> list[Effect]:
    """Every arm's difference to its reference in one metric; Holm's correction runs over these arms."""
    references = {arm.name: arm.reference for arm in plan.arms if arm.reference}
    paired, differences = {}, {}
    for arm, reference in references.items():
        own = _by_seed(arm, metric, confirmed, about)
        theirs = _by_seed(reference, metric, confirmed, about)
        if shared := [key for key in own if key in theirs]:
            paired[arm] = [(own[key][1], theirs[key][1]) for key in shared]
            differences[arm] = _by_seed_alone({key: own[key][0] - theirs[key][0] for key in shared})
    p_values = {arm: sign_flip_p(values) for arm, values in differences.items()}
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return [
        Effect(
            arm=arm,
            reference=references[arm],
            metric=metric,
            estimate=estimate(differences[arm], span=about.span_of_difference(metric)),
            p=p_values[arm],
            p_holm=corrected[arm],
            pairs=tuple(pairs),
        )
        for arm, pairs in paired.items()
    ]


def _tally(arm: str, records: Sequence[Record]) -> ArmTally:
    own = [record for record in records if record.arm == arm]
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for record in own:
        outcomes[record.phase][record.outcome.value if record.outcome else "open"] += 1
    chosen = next((record.assignment for record in own if record.phase == "confirm" and not record.rank), {})
    return ArmTally(
        arm=arm,
        outcomes={phase: dict(sorted(counts.items())) for phase, counts in sorted(outcomes.items())},
        seconds=sum(record.last.seconds for record in own if record.last),
        assignment=dict(chosen),
    )


def arm_metrics(report: Report) -> dict[str, dict[str, float]]:
    """What the tracking UI compares between arms: of every confirm metric the mean, its interval and n, and
    the difference to the arm's reference with its interval."""
    flat: dict[str, dict[str, float]] = {arm: {} for arm in report.arms}
    for cell in report.cells:
        # The UI sorts by name, so that the mean, named as in trials, comes first, and cuts long names off.
        named = {
            "": cell.estimate.mean,
            ".ci_high": cell.estimate.high,
            ".ci_low": cell.estimate.low,
            ".n": cell.estimate.n,
            ".published": cell.published,
        }
        effect = report.effect(cell.arm, cell.metric)
        if effect is not None:
            named |= {
                ".diff": effect.estimate.mean,
                ".diff_high": effect.estimate.high,
                ".diff_low": effect.estimate.low,
            }
        flat[cell.arm] |= {cell.metric + name: value for name, value in named.items() if value is not None}
    return flat
