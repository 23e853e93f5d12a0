"""From records to a report. Pure: the same records give the same report for ever."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean

from orchestrator.plan.types import Plan
from orchestrator.report.statistics import estimate, holm, sign_flip_p
from orchestrator.report.types import ArmTally, Cell, Effect, Report
from orchestrator.trials import OutcomeKind, Record

REPORTED = ("exact_match", "accuracy", "accuracy_last", "accuracy_whole", "depth", "saved", "ponder", "loss")
"""Quantities of a split that the report compares, most wanted first, after those that only a task has."""
UNREPORTED = (
    *("floor", "exact_match_floor", "answer_length", "depth_encoder", "depth_decoder"),
    *("depth_p10", "depth_p50", "depth_p90"),
)
"""Quantities that help to read others; what is in neither list is a task's own, such as BLEU."""
FLOORS = {"accuracy": "floor", "accuracy_last": "floor", "exact_match": "exact_match_floor"}
"""Quantities that have a floor, and what it is measured as."""
SHARES = ("accuracy", "accuracy_last", "accuracy_whole", "exact_match", "saved")
"""Quantities between 0 and 1."""
AMOUNTS = ("depth", "ponder", "loss", "tokens_per_s")
"""Quantities that are not below 0."""
MEANINGS = {
    "accuracy": "share of right answers",
    "accuracy_last": "share of right answers at the last position",
    "accuracy_whole": "share of examples with every answer right",
    "exact_match": "share of written answers that are right to the last token",
    "depth": "layers run",
    "saved": "share of layers that halting left out",
    "ponder": "ponder cost, whose weight in training is train.ponder_weight",
    "loss": "nats, without the ponder cost",
    "tokens_per_s": "training speed",
}
"""What a reader who has not seen the names before is told of them."""
SELECTION_SPLIT = "valid"
SPEED = "train/tokens_per_s"
"""How fast training was between the last two measurements: where halting is to save time, this shows it."""


def summarise(plan: Plan, records: Iterable[Record]) -> Report:
    """Every arm's confirm results, their paired differences to its reference, and how all trials ended."""
    known = list(records)
    confirmed = [record for record in known if record.phase == "confirm" and record.outcome is not None]
    reread = [record for record in known if record.phase == "posthoc" and record.outcome is not None]
    ended = {each.trial_id for each in known if each.outcome is not None and each.outcome.final}
    floors = _floors(plan, confirmed)
    metrics = _metrics(plan, confirmed)
    arms = tuple(arm.name for arm in plan.arms)
    cells = [
        cell for arm in arms for metric in metrics if (cell := _cell(plan, arm, metric, confirmed, floors))
    ]
    effects = [effect for metric in metrics for effect in _effects(plan, metric, confirmed, floors)]
    return Report(
        sweep=plan.name,
        question=plan.question,
        metrics=metrics,
        cells=tuple(cells),
        posthoc=tuple(_posthoc(plan, metrics, reread, floors)),
        effects=tuple(effects),
        tallies=tuple(_tally(arm, known) for arm in arms),
        floors=floors,
        arms=arms,
        power=plan.power.sentence if plan.power else "",
        headlines=_headlines(plan, metrics),
        left=len({each.trial_id for each in plan.trials}.difference(ended)),
    )


def explained(quantity: str) -> str:
    """A quantity with what it means, if that is known: `depth (layers run)`."""
    return f"{quantity} ({MEANINGS[quantity]})" if quantity in MEANINGS else quantity


def _metrics(plan: Plan, confirmed: Sequence[Record]) -> tuple[str, ...]:
    """Metrics measured by any confirmed trial, accuracy of every split before depth of every split."""
    splits = (*(plan.confirm.splits if plan.confirm else ()), SELECTION_SPLIT)
    measured = {name for record in confirmed if record.last for name in record.last.metrics}
    found = {name.rpartition("/")[2] for name in measured if name.rpartition("/")[0] in splits}
    own = sorted(found.difference(REPORTED, UNREPORTED))
    wanted = [*(f"{split}/{quantity}" for quantity in (*own, *REPORTED) for split in splits), SPEED]
    return tuple(name for name in wanted if name in measured)


def _headlines(plan: Plan, metrics: Sequence[str]) -> tuple[str, ...]:
    """What is searched for; without a search the first quantity that is declared, or measured."""
    if plan.trainable is None:
        return ()
    searched = [each.metric for each in plan.search.objectives] if plan.search is not None else []
    measured = [metric.rpartition("/")[2] for metric in (*searched, *metrics)]
    declared = [each.name for each in plan.metrics if each.name in measured]
    many = len(searched) or 1
    return tuple(dict.fromkeys((measured if searched else [*declared, *measured])[:many]))


def _floors(plan: Plan, confirmed: Sequence[Record]) -> dict[str, float]:
    declared = {each.name: each.floor for each in plan.metrics if each.floor is not None}
    floors: dict[str, float] = {}
    for record in confirmed:
        measured = record.last.metrics if record.last else {}
        for name in measured:
            split, _, quantity = name.rpartition("/")
            floor = declared.get(quantity, measured.get(f"{split}/{FLOORS.get(quantity)}"))
            if floor is not None:
                floors[name] = floor
    return dict(sorted(floors.items()))


def _value(record: Record, metric: str, floors: Mapping[str, float]) -> float | None:
    """The record's value; a failed trial is no better than always giving the commonest label or answer.

    Of several labels that is taken to get the last one right as often as any, and never all of them.
    """
    if record.outcome is OutcomeKind.FINISHED and record.last is not None:
        return record.last.metrics.get(metric)
    if record.outcome is not None and record.outcome.failed:
        split, _, quantity = metric.rpartition("/")
        if quantity == "accuracy_whole":
            return floors.get(f"{split}/exact_match", 0.0)
        return floors.get(metric)
    return None


def _span(plan: Plan, metric: str) -> tuple[float, float]:
    """Between what a quantity lies: as its trainable declares it, or as the built-in one measures it."""
    quantity = metric.rpartition("/")[2]
    if declared := [each for each in plan.metrics if each.name == quantity]:
        low, high = declared[0].low, declared[0].high
        return (-math.inf if low is None else low, math.inf if high is None else high)
    if plan.trainable is not None:
        return (-math.inf, math.inf)
    return (0.0 if quantity in (*SHARES, *AMOUNTS) else -math.inf, 1.0 if quantity in SHARES else math.inf)


def _span_of_difference(plan: Plan, metric: str) -> tuple[float, float]:
    low, high = _span(plan, metric)
    return low - high, high - low


def _by_seed(
    arm: str, metric: str, confirmed: Sequence[Record], floors: Mapping[str, float]
) -> dict[tuple[int, int], tuple[float, str]]:
    """(rank, seed) to value and record id."""
    found = {}
    for record in confirmed:
        value = _value(record, metric, floors) if record.arm == arm else None
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
    plan: Plan, arm: str, metric: str, confirmed: Sequence[Record], floors: Mapping[str, float]
) -> Cell | None:
    values = _by_seed(arm, metric, confirmed, floors)
    if not values:
        return None
    failed = sum(
        record.arm == arm and record.outcome is not None and record.outcome.failed for record in confirmed
    )
    published, source = _published(plan, arm, metric)
    return Cell(
        arm=arm,
        metric=metric,
        estimate=estimate(
            _by_seed_alone({key: value for key, (value, _) in values.items()}), span=_span(plan, metric)
        ),
        failed=failed,
        record_ids=tuple(trial_id for _, trial_id in values.values()),
        published=published,
        published_source=source,
    )


def _posthoc(
    plan: Plan, metrics: Sequence[str], reread: Sequence[Record], floors: Mapping[str, float]
) -> Iterator[Cell]:
    """Cells of every setting under which checkpoints were read again, in the order of the plan."""
    for arm, overrides in product(plan.arms, plan.posthoc):
        setting = ", ".join(f"{path}={value}" for path, value in overrides.items())
        own = [
            record
            for record in reread
            if record.arm == arm.name and dict(record.overrides) == dict(overrides)
        ]
        for metric in metrics:
            if cell := _cell(plan, arm.name, metric, own, floors):
                yield replace(cell, setting=setting, published=None, published_source="")


def _published(plan: Plan, arm: str, metric: str) -> tuple[float | None, str]:
    split, _, quantity = metric.rpartition("/")
    for row in plan.published:
        # In a grid a published row stands beside every cell of its arm.
        if row["arm"] in (arm, arm.partition("[")[0]) and (row["split"], row["metric"]) == (split, quantity):
            return float(row["value"]), str(row.get("source", ""))
    return None, ""


def _effects(
    plan: Plan, metric: str, confirmed: Sequence[Record], floors: Mapping[str, float]
) -> list[Effect]:
    """Every arm's difference to its reference in one metric; Holm's correction runs over these arms."""
    references = {arm.name: arm.reference for arm in plan.arms if arm.reference}
    paired, differences = {}, {}
    for arm, reference in references.items():
        own = _by_seed(arm, metric, confirmed, floors)
        theirs = _by_seed(reference, metric, confirmed, floors)
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
            estimate=estimate(differences[arm], span=_span_of_difference(plan, metric)),
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
