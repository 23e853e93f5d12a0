"""Compare arms with their references: verdicts on primary outcomes, estimates of all other metrics.

Primary outcomes are tested by the procedure of `statistics`. An arm that was decided before its last seed has
the verdict of the look that decided it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

from orchestrator.conductor.rounds import decisions, measured
from orchestrator.plan.answer import answer_plan, better, metric_splits
from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.comparisons.contrasts import (
    Comparisons,
    Contrast,
    contrast_groups,
    goal_of,
    paired_seeds,
)
from orchestrator.report.comparisons.failed_seeds import difference_bounds, withheld_words
from orchestrator.report.comparisons.untested import Untested, why_untested
from orchestrator.report.results.extensions import exploratory
from orchestrator.report.results.number_words import interval_words, p_words
from orchestrator.report.results.readings import NOT_MEASURED, Readings, by_seed_alone
from orchestrator.report.results.statistics import estimate, of_paired, sign_flip_p, win_share, wins_of
from orchestrator.report.results.types import ArmVerdict, Coverage, Effect
from orchestrator.spec.scalars import assignments
from orchestrator.statistics.decision_chance import TIMES, DecisionChance, outlooks
from orchestrator.statistics.missing import MOST_MISSING
from orchestrator.statistics.paired import Key, Paired
from orchestrator.statistics.sequential import EarlyVerdict
from orchestrator.statistics.verdicts import SEEDS_LEAST, Verdict, verdict
from orchestrator.trials import OutcomeKind
from search_spaces.wording import amount, listed
from trainables.metrics import Metric, split_and_quantity


@dataclass(frozen=True, slots=True)
class Lacking:
    """Number of seeds, or repeats, without a value in an arm or its reference; if any, nothing is tested."""

    failed: int
    unmeasured: int
    """Seeds that finished without a primary outcome, and did not fail in the other arm."""
    waiting: int
    """Seeds that have not ended; there is no test before the end."""
    unit: str = "seed"

    @property
    def any(self) -> bool:
        """Return whether any seed has no value."""
        return self.spoiled > 0 or self.waiting > 0

    @property
    def spoiled(self) -> int:
        """Return the number of seeds that will never have a value."""
        return self.failed + self.unmeasured

    @property
    def words(self) -> str:
        """Return why seeds will never have a value, as text."""
        failed = [f"{amount(self.failed, self.unit)} failed"] * bool(self.failed)
        lack = "lacks" if self.unmeasured == 1 else "lack"
        lacking = [f"{amount(self.unmeasured, self.unit)} {lack} a primary outcome"] * bool(self.unmeasured)
        return ", ".join([*failed, *lacking])


def answer_of(plan: Plan, metrics: Sequence[Metric], measured: Sequence[str]) -> AnswerPlan | None:
    """Return the primary outcomes and the level of a plan; None without confirm trials.

    If the plan could not determine the metrics, the first measured metric is the outcome. Older plans have no
    answer; their outcome is the headline quantity.
    """
    if plan.confirm is None:
        return None
    compared = sum(bool(arm.reference) for arm in plan.arms)
    names = metric_splits(plan.search, plan.confirm, plan.answer)
    quantities = {*measured, *map(names.quantity, measured)}
    known = [each for each in metrics if each.name in quantities]
    found = plan.answer or answer_plan(None, plan.confirm, plan.search, known, compared)
    if found.outcomes:
        may_be_bare = plan.search is None and not plan.confirm.splits
        return replace(found, outcomes=_as_reported(found.outcomes, measured)) if may_be_bare else found
    of_no_search = () if plan.search else (*names.selection, "")
    splits = plan.confirm.splits[:1] or of_no_search
    first = [name for name in measured if names.split(name) in splits]
    return replace(found, outcomes=tuple(first[:1]))


def _as_reported(outcomes: Sequence[str], measured: Sequence[str]) -> tuple[str, ...]:
    """Return the outcomes by their reported names: without the split if no trial reports the split."""
    bare = {name: split_and_quantity(name)[1] for name in outcomes if name not in measured}
    return tuple(bare[name] if bare.get(name) in measured else name for name in outcomes)


def effects(
    plan: Plan, metrics: Sequence[str], readings: Readings, answer: AnswerPlan, ended: frozenset[str]
) -> Iterator[Effect]:
    """Yield the difference of every arm to its reference, metric by metric.

    Only primary outcomes have p-values and corrected intervals.
    """
    shown = tuple(dict.fromkeys((*answer.outcomes, *metrics)))
    looked, to_run = decided_early(plan, readings), open_seeds(plan, ended)
    primary = Comparisons(plan, answer, readings, to_run).primary() | _at_looks(looked)
    references = {arm.name: arm.reference for arm in plan.arms if arm.reference}
    for metric, (arm, reference) in product(shown, references.items()):
        each = paired_seeds(((arm, reference),), metric, readings)
        if not each.by_unit:
            continue
        values = list(each.by_unit.values())
        claimed = primary.get((arm, metric))
        span = readings.span_of_difference(metric, arm, reference)
        lacking = _lacking((arm, reference), readings, to_run)
        whole = arm in looked or not _untested(lacking, ((arm, reference),), metric, readings)
        untested = claimed and why_untested(plan, ((arm, reference),), metric, readings)
        whole = whole and not untested
        tested = claimed is not None and (whole or (claimed.missing > 0 and not untested))
        found = of_paired(claimed, span) if claimed else estimate(values, span=span)
        goal = better(readings.known(metric), metric, plan.search)
        units = claimed.by_seed.values() if claimed else values
        yield Effect(
            arm=arm,
            reference=reference,
            metric=metric,
            estimate=found,
            pairs=each.record_ids,
            primary=claimed is not None,
            p=claimed.p if claimed and tested else None,
            p_sign_flips=sign_flip_p(values) if claimed and whole else None,
            spread_raised=claimed.raised if claimed else False,
            wins=win_share([*units], goal, has_interval=found.low is not None),
        )


def verdicts(
    plan: Plan, readings: Readings, answer: AnswerPlan, ended: frozenset[str]
) -> Iterator[ArmVerdict]:
    """Yield one verdict per primary outcome and arm with a reference; contrasts over all contexts last."""
    looked, to_run = decided_early(plan, readings), open_seeds(plan, ended)
    primary = Comparisons(plan, answer, readings, to_run).primary()
    contrasts = [contrast for group in contrast_groups(plan, answer) for contrast in group.contrasts]
    for metric, contrast in product(answer.outcomes, sorted(contrasts, key=_place_in(plan))):
        if contrast.arm in looked:
            yield _of_look(plan, looked[contrast.arm], metric, readings)
            continue
        found = primary.get((contrast.arm, metric))
        yield judged(plan, readings, answer, contrast, metric, found=found, to_run=to_run)


def judged(
    plan: Plan,
    readings: Readings,
    answer: AnswerPlan,
    contrast: Contrast,
    metric: str,
    *,
    found: Paired | None,
    to_run: Mapping[str, set[int]],
) -> ArmVerdict:
    """Return the verdict on a contrast in a primary outcome.

    Args:
        plan: Plan of the sweep.
        readings: Results of the confirm trials.
        answer: Primary outcomes, level and margin.
        contrast: The arm and its reference.
        metric: The primary outcome.
        found: Estimate and test of the difference; None without a value.
        to_run: Seeds by arm that have not ended.
    """
    lacking = _lacking(contrast.arms, readings, to_run)
    untested = _untested(lacking, contrast.pairs, metric, readings) and not (found and found.missing)
    goal = goal_of(plan, answer, metric, readings)
    failed = lacking.spoiled if untested or found is None else 0
    said = verdict(found, failed=failed, unit=readings.unit, **goal)
    few = found is None or found.n < SEEDS_LEAST or found.spread is None
    if untested or found is None:
        said = _with_reason(said, contrast, metric, readings, lacking=lacking, few=few)
    # With a prior for the spread, the chance of a decision is unknown.
    has_own_spread = not few and found is not None and found.prior is None
    is_open = said.kind == "undecided" and not untested and has_own_spread
    more = outlooks(found, goal["margin"]) if is_open and found else ()
    covers, later = coverage(plan, contrast.arms), exploratory(plan, contrast.pairs)
    has_no_result = found is None and lacking.waiting > 0
    if has_no_result:
        text = no_result_words(lacking.waiting, readings.unit)
    elif said.kind == "undecided":
        text = _undecided(said, more, readings.unit)
    else:
        text = said.text + RIDERS[covers] + later
    made = ArmVerdict(
        arm=contrast.arm,
        reference=contrast.reference,
        metric=metric,
        kind=None if has_no_result else said.kind,
        text=text,
        outlooks=more,
        difference=of_paired(found, _span(contrast, metric, readings)) if found else None,
        p=found.p if found and not untested else None,
        level=answer.level,
        seeds=_ended(plan, contrast, metric, readings, to_run),
        context="" if contrast.contexts else assignments(plan.arm(contrast.arm).context),
        pooled=tuple(arm for arm, _ in contrast.pairs) if contrast.contexts else (),
        covers=covers,
        missing=found.missing if found else 0,
        wins=wins_of(found, goal["better"]) if found else None,
        prior=found.prior if found and not found.missing else None,
    )
    made = _unless_untested(made, why_untested(plan, contrast.pairs, metric, readings))
    return replace(made, line=line_of(made, answer, contrast.contexts))


def no_result_words(waiting: int, unit: str) -> str:
    """Return the text of a comparison of which no seed of both arms has finished."""
    return f"no result yet: {amount(waiting, unit)} not run"


def _unless_untested(made: ArmVerdict, found: Untested | None) -> ArmVerdict:
    """Return the verdict, withheld if its comparison cannot be tested."""
    if found is None or made.difference is None:
        return made
    text = f"{found.name}: {found.text}"
    return replace(made, kind="undecided", text=text, p=None, outlooks=(), missing=0, withheld=found.code)


def _undecided(said: Verdict, more: Sequence[DecisionChance], unit: str) -> str:
    """Return the text of an undecided verdict, with the chance that twice as many units decide it."""
    if not more:
        return said.text
    found = more[TIMES.index(1.0)]
    chance = f"{amount(found.more, f'more {unit}')} would decide it in {found.chance:.0%} of cases"
    return f"{said.text}{';' if said.withheld else ':'} {chance}"


RIDERS: Mapping[Coverage, str] = {
    "one search": " at the settings found by one search",
    "repeated searches": "",
    "given settings": "",
}
"""Text added to a verdict to state for which settings it holds."""


def coverage(plan: Plan, arms: Iterable[str]) -> Coverage:
    """Return what the intervals of differences between `arms` hold for."""
    if plan.search is None or not any(plan.arm(name).is_searched for name in arms):
        return "given settings"
    return "one search" if plan.repeats == 1 else "repeated searches"


def _with_reason(
    said: Verdict, contrast: Contrast, metric: str, readings: Readings, *, lacking: Lacking, few: bool
) -> Verdict:
    """Return the verdict with the reason why it is withheld, if it is.

    Args:
        said: The verdict without a reason.
        contrast: The arm and its reference.
        metric: The primary outcome.
        readings: Results of the confirm trials.
        lacking: Seeds without a value.
        few: Whether no verdict would be possible even if all seeds had values.
    """
    own = any(readings.failed_seeds(arm) for arm, _ in contrast.pairs)
    if lacking.failed and not lacking.unmeasured and not own:
        # All seeds of the arm finished, so the text must name the reference whose seeds failed.
        said = replace(said, text=f"{said.text} in {contrast.reference}")
    why = ""
    if lacking.spoiled and not lacking.waiting and not few:
        bounds = difference_bounds(contrast.pairs, metric, readings)
        why = withheld_words(bounds, metric, MOST_MISSING)
    if lacking.unmeasured:
        return replace(said, text=f"undecided: {lacking.words}{why}", withheld=f"{lacking.words}{why}")
    if lacking.failed:
        return replace(said, text=f"{said.text}{why}", withheld=f"{said.withheld}{why}")
    if lacking.waiting:
        text = f"undecided: {amount(lacking.waiting, lacking.unit)} not run"
        return replace(said, kind="undecided", text=text)
    if not readings.all_values(metric):
        return replace(said, text="undecided: no trial measured it")
    if lacks := _never_measured(contrast.arms, metric, readings):
        reason = f"no seed of {' and of '.join(lacks)} measured it"
        return replace(said, text=f"undecided: {reason}", withheld=reason)
    return said


def _place_in(plan: Plan) -> Callable[[Contrast], int]:
    """Return a sort key for contrasts: arms in the order of the plan, then contrasts over contexts."""
    places = {arm.name: place for place, arm in enumerate(plan.arms)}
    return lambda contrast: places.get(contrast.arm, len(places))


def _span(contrast: Contrast, metric: str, readings: Readings) -> tuple[float, float]:
    """Return the possible range of values of the contrast."""
    spans = [readings.span_of_difference(metric, *pair) for pair in contrast.pairs]
    return fmean(low for low, _ in spans), fmean(high for _, high in spans)


def _never_measured(arms: Iterable[str], metric: str, readings: Readings) -> list[str]:
    """Return those of `arms` that have finished seeds, but no value of the metric."""
    return [arm for arm in arms if readings.finished_seeds(arm) and not readings.by_seed(arm, metric)]


def _ended(
    plan: Plan, contrast: Contrast, metric: str, readings: Readings, to_run: Mapping[str, set[int]]
) -> str:
    """Return how many seeds have a value: `5 of 8 seeds finished`, `5 of 8 seeds measured it`."""
    arms = [arm for arm, _ in contrast.pairs]
    finished = readings.whole(set.intersection(*map(readings.finished_seeds, arms)))
    failed = {seed: how for arm in arms for seed, how in readings.failed_seeds(arm).items()}
    every = {*failed}.union(*(readings.finished_seeds(arm) | to_run.get(arm, set()) for arm in arms))
    of = len({*map(readings.unit_of, every)}) or plan.num_units
    unit = readings.unit
    where = " in every context" if contrast.contexts else ""
    measured_by_none = _never_measured(arms, metric, readings) and readings.all_values(metric)
    if NOT_MEASURED not in failed.values() and not measured_by_none:
        return f"{len(finished)} of {amount(of, unit)} finished{where}"
    measured_by = [{*by_seed_alone(readings.by_seed(arm, metric))} for arm in arms]
    whole = readings.whole(set.intersection(*measured_by))
    return f"{len(whole)} of {amount(of, unit)} measured it{where}"


def _at_looks(looked: Mapping[str, EarlyVerdict]) -> dict[Key, Paired]:
    return {(arm, metric): found for arm, each in looked.items() for metric, found in each.found.items()}


def _of_look(plan: Plan, decision: EarlyVerdict, metric: str, readings: Readings) -> ArmVerdict:
    """Return the verdict of the look that decided it; later seeds of the reference do not change it."""
    said, found = decision.verdicts[metric], decision.found[metric]
    reference = plan.arm(decision.arm).reference
    covers = coverage(plan, (decision.arm, reference))
    made = ArmVerdict(
        arm=decision.arm,
        reference=reference,
        metric=metric,
        kind=said.kind,
        text=said.text if said.kind == "undecided" else said.text + RIDERS[covers],
        difference=of_paired(found, readings.span_of_difference(metric, decision.arm, reference)),
        p=found.p,
        level=decision.level,
        seeds=when_decided(plan, decision),
        looked=True,
        covers=covers,
        context=assignments(plan.arm(decision.arm).context),
        wins=wins_of(found, better(readings.known(metric), metric, plan.search)),
    )
    made = _unless_untested(made, why_untested(plan, ((decision.arm, reference),), metric, readings))
    return replace(made, line=line_of(made, plan.answer))


def line_of(made: ArmVerdict, answer: AnswerPlan | None, contexts: Sequence[str] = ()) -> str:
    """Return one line with the verdict, difference, p-value and seeds of an arm."""
    margin = answer.margin if answer is not None and made.metric == answer.outcomes[0] else None
    against = f"against {made.reference}"
    arm = f"{made.arm}, mean over {listed(contexts)}" if contexts else made.arm
    if made.difference is None:
        return f"{arm}: {made.text} ({made.metric} {against}, {made.seeds})"
    p = "" if made.p is None else f", p={p_words(made.p, made.level)}"
    difference = interval_words(made.difference, "+", margin)
    return f"{arm}: {made.text} ({made.metric} {difference} {against}{p}, {made.seeds})"


def open_seeds(plan: Plan, ended: frozenset[str]) -> dict[str, set[int]]:
    """Return the seeds of each arm that have not ended."""
    found: dict[str, set[int]] = defaultdict(set)
    for each in plan.trials:
        if each.phase == "confirm" and each.trial_id not in ended:
            found[each.arm].add(each.seed)
    return found


def _untested(lacking: Lacking, pairs: Sequence[tuple[str, str]], metric: str, readings: Readings) -> bool:
    """Return whether seeds have not ended, or have no value of this metric."""
    if lacking.waiting or not lacking.spoiled:
        return lacking.waiting > 0
    return difference_bounds(pairs, metric, readings) != {}


def _lacking(arms: Sequence[str], readings: Readings, to_run: Mapping[str, set[int]]) -> Lacking:
    ways = [each for arm in arms for each in readings.failed_seeds(arm).items()]
    failed = {readings.unit_of(seed) for seed, how in ways if how != NOT_MEASURED}
    unmeasured = {readings.unit_of(seed) for seed, _ in ways} - failed
    waiting = {readings.unit_of(seed) for arm in arms for seed in to_run.get(arm, set())}
    return Lacking(len(failed), len(unmeasured), len(waiting), readings.unit)


def decided_early(plan: Plan, readings: Readings) -> dict[str, EarlyVerdict]:
    """Return the verdicts at looks by arm, computed again from the values of the trials."""
    if plan.confirm is None or plan.confirm.stop is None or plan.answer is None:
        return {}
    confirmed: dict[tuple[str, int], Mapping[str, float] | None] = {}
    for each in readings.records:
        if each.outcome is not None and each.outcome.final and each.outcome is not OutcomeKind.SKIPPED:
            metrics = each.last.metrics if each.last is not None else None
            confirmed[each.arm, each.seed] = measured(each.outcome, metrics)
    return decisions(plan, confirmed)


def when_decided(plan: Plan, decision: EarlyVerdict) -> str:
    """Return after how many seeds or repeats an arm was decided, and the level of its interval."""
    seeds = amount(plan.num_units, plan.unit)
    return f"ended after {decision.seeds} of {seeds}, interval at level {decision.level:g}"
