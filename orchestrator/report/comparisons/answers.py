"""Compare arms with their references: verdicts on primary outcomes, estimates of all other metrics.

Primary outcomes are tested by the procedure of `statistics`. An arm that was decided before its last seed has
the verdict of the look that decided it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

from orchestrator.conductor.rounds import decisions, metrics_for_look
from orchestrator.plan.answer import answer_plan, better_direction, metric_splits
from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.comparisons.contrasts import (
    Comparisons,
    Contrast,
    contrast_groups,
    outcome_goal,
    paired_seeds,
)
from orchestrator.report.comparisons.failed_seeds import difference_bounds, withheld_reason
from orchestrator.report.comparisons.untested import UntestedReason, find_untested_reason
from orchestrator.report.results.extensions import exploratory_reason
from orchestrator.report.results.number_formats import format_interval, format_number, format_p
from orchestrator.report.results.seed_results import NOT_MEASURED, SeedResults, mean_by_seed
from orchestrator.report.results.statistics import (
    estimate,
    paired_estimate,
    paired_win_share,
    sign_flip_p,
    win_share,
)
from orchestrator.report.results.types import ArmVerdict, Coverage, Effect
from orchestrator.spec.scalars import assignments
from orchestrator.statistics.decision_chance import TIMES, DecisionChance, decision_chances
from orchestrator.statistics.missing import MOST_MISSING
from orchestrator.statistics.paired import Key, PairedEstimate
from orchestrator.statistics.sequential import EarlyVerdict
from orchestrator.statistics.verdicts import SEEDS_LEAST, Verdict, verdict
from orchestrator.trials import OutcomeKind
from search_spaces.wording import amount, listed
from trainables.metrics import Metric, split_and_quantity


@dataclass(frozen=True, slots=True)
class MissingSeeds:
    """Number of seeds, or repeats, without a value in an arm or its reference; if any, nothing is tested."""

    failed: int
    unmeasured: int
    """Seeds that finished without a primary outcome, and did not fail in the other arm."""
    num_open: int
    """Seeds that have not ended; there is no test before the end."""
    unit: str = "seed"

    @property
    def any(self) -> bool:
        """Return whether any seed has no value."""
        return self.spoiled > 0 or self.num_open > 0

    @property
    def spoiled(self) -> int:
        """Return the number of seeds that will never have a value."""
        return self.failed + self.unmeasured

    @property
    def words(self) -> str:
        """Return as text why some seeds will never have a value."""
        failed_text = [f"{amount(self.failed, self.unit)} failed"] * bool(self.failed)
        lack = "lacks" if self.unmeasured == 1 else "lack"
        missing = [f"{amount(self.unmeasured, self.unit)} {lack} a primary outcome"] * bool(self.unmeasured)
        return ", ".join([*failed_text, *missing])


def primary_answer(plan: Plan, metrics: Sequence[Metric], metric_names: Sequence[str]) -> AnswerPlan | None:
    """Return the primary outcomes and the level of a plan; None without confirm trials.

    If the plan could not determine the metrics, the first measured metric is the outcome. Older plans have no
    answer; their outcome is the headline quantity.
    """
    if plan.confirm is None:
        return None
    num_compared = sum(bool(arm.reference) for arm in plan.arms)
    names = metric_splits(plan.search, plan.confirm, plan.answer)
    quantities = {*metric_names, *map(names.quantity, metric_names)}
    known_metrics = [metric for metric in metrics if metric.name in quantities]
    plan_of_answer = plan.answer or answer_plan(None, plan.confirm, plan.search, known_metrics, num_compared)
    if plan_of_answer.outcomes:
        may_be_bare = plan.search is None and not plan.confirm.splits
        return (
            replace(plan_of_answer, outcomes=_reported_names(plan_of_answer.outcomes, metric_names))
            if may_be_bare
            else plan_of_answer
        )
    of_no_search = () if plan.search else (*names.selection, "")
    splits = plan.confirm.splits[:1] or of_no_search
    first = [name for name in metric_names if names.split(name) in splits]
    return replace(plan_of_answer, outcomes=tuple(first[:1]))


def _reported_names(outcomes: Sequence[str], metric_names: Sequence[str]) -> tuple[str, ...]:
    """Return the outcomes by reported name, which lacks the split if no trial reports it with the split."""
    quantities = {name: split_and_quantity(name)[1] for name in outcomes if name not in metric_names}
    return tuple(quantities[name] if quantities.get(name) in metric_names else name for name in outcomes)


def effects(
    plan: Plan, metrics: Sequence[str], results: SeedResults, answer: AnswerPlan, ended_ids: frozenset[str]
) -> Iterator[Effect]:
    """Yield the difference of every arm to its reference, metric by metric.

    Only primary outcomes have p-values and corrected intervals.
    """
    shown_metrics = tuple(dict.fromkeys((*answer.outcomes, *metrics)))
    early, to_run = early_verdicts(plan, results), open_seeds(plan, ended_ids)
    primary = Comparisons(plan, answer, results, to_run).primary() | _comparisons_at_looks(early)
    references = {arm.name: arm.reference for arm in plan.arms if arm.reference}
    for metric, (arm, reference) in product(shown_metrics, references.items()):
        pairs = paired_seeds(((arm, reference),), metric, results)
        if not pairs.by_unit:
            continue
        values = list(pairs.by_unit.values())
        claimed = primary.get((arm, metric))
        span = results.span_of_difference(metric, arm, reference)
        missing = _missing_seeds((arm, reference), results, to_run)
        is_complete = arm in early or not _lacks_values(missing, ((arm, reference),), metric, results)
        untested = claimed and find_untested_reason(plan, ((arm, reference),), metric, results)
        is_complete = is_complete and not untested
        is_tested = claimed is not None and (is_complete or (claimed.missing > 0 and not untested))
        cell_estimate = paired_estimate(claimed, span) if claimed else estimate(values, span=span)
        goal = better_direction(results.known(metric), metric, plan.search)
        units = claimed.by_seed.values() if claimed else values
        yield Effect(
            arm=arm,
            reference=reference,
            metric=metric,
            estimate=cell_estimate,
            pairs=pairs.record_ids,
            primary=claimed is not None,
            p=claimed.p if claimed and is_tested else None,
            p_sign_flips=sign_flip_p(values) if claimed and is_complete else None,
            spread_raised=claimed.raised if claimed else False,
            wins=win_share([*units], goal, has_interval=cell_estimate.low is not None),
        )


def verdicts(
    plan: Plan, results: SeedResults, answer: AnswerPlan, ended_ids: frozenset[str]
) -> Iterator[ArmVerdict]:
    """Yield one verdict per primary outcome and arm with a reference; contrasts over all contexts last."""
    early, to_run = early_verdicts(plan, results), open_seeds(plan, ended_ids)
    primary = Comparisons(plan, answer, results, to_run).primary()
    contrasts = [contrast for group in contrast_groups(plan, answer) for contrast in group.contrasts]
    for metric, contrast in product(answer.outcomes, sorted(contrasts, key=_plan_order(plan))):
        if contrast.arm in early:
            yield _verdict_at_look(plan, early[contrast.arm], metric, results)
            continue
        pair_estimate = primary.get((contrast.arm, metric))
        yield make_verdict(plan, results, answer, contrast, metric, paired=pair_estimate, to_run=to_run)


def make_verdict(
    plan: Plan,
    results: SeedResults,
    answer: AnswerPlan,
    contrast: Contrast,
    metric: str,
    *,
    paired: PairedEstimate | None,
    to_run: Mapping[str, set[int]],
) -> ArmVerdict:
    """Return the verdict on a contrast in a primary outcome.

    Args:
        plan: Plan of the sweep.
        results: Results of the confirm trials.
        answer: Primary outcomes, level and margin.
        contrast: The arm and its reference.
        metric: The primary outcome.
        paired: Estimate and test of the difference; None without a value.
        to_run: Seeds by arm that have not ended.
    """
    missing = _missing_seeds(contrast.arms, results, to_run)
    untested = _lacks_values(missing, contrast.pairs, metric, results) and not (paired and paired.missing)
    goal = outcome_goal(plan, answer, metric, results)
    num_failed = missing.spoiled if untested or paired is None else 0
    statement = verdict(paired, num_failed=num_failed, unit=results.unit, **goal)
    has_few_seeds = paired is None or paired.n < SEEDS_LEAST or paired.spread is None
    if untested or paired is None:
        statement = _add_reason(statement, contrast, metric, results, missing=missing, few=has_few_seeds)
    # With a prior for the spread, the chance of a decision is unknown.
    has_own_spread = not has_few_seeds and paired is not None and paired.prior is None
    is_open = statement.kind == "undecided" and not untested and has_own_spread
    chances = decision_chances(paired, goal["margin"]) if is_open and paired else ()
    covers, exploratory = interval_coverage(plan, contrast.arms), exploratory_reason(plan, contrast.pairs)
    has_no_result = paired is None and missing.num_open > 0
    if has_no_result:
        text = pending_text(missing.num_open, results.unit)
    elif statement.kind == "undecided":
        text = _undecided_text(statement, chances, results.unit)
    else:
        text = statement.text + RIDERS[covers] + exploratory
    arm_verdict = ArmVerdict(
        arm=contrast.arm,
        reference=contrast.reference,
        metric=metric,
        kind=None if has_no_result else statement.kind,
        text=text,
        outlooks=chances,
        difference=paired_estimate(paired, _difference_range(contrast, metric, results)) if paired else None,
        p=paired.p if paired and not untested else None,
        level=answer.level,
        seeds=_completion_text(plan, contrast, metric, results, to_run),
        context="" if contrast.contexts else assignments(plan.arm(contrast.arm).context),
        pooled=tuple(arm for arm, _ in contrast.pairs) if contrast.contexts else (),
        covers=covers,
        missing=paired.missing if paired else 0,
        wins=paired_win_share(paired, goal["better"]) if paired else None,
        prior=paired.prior if paired and not paired.missing else None,
        waiting=missing.num_open,
        exploratory=bool(exploratory) and not has_no_result and statement.kind != "undecided",
    )
    arm_verdict = _withhold_if_untested(
        arm_verdict, find_untested_reason(plan, contrast.pairs, metric, results)
    )
    line = verdict_line(arm_verdict, answer, contrast.contexts, too_few=too_few_differences(paired))
    return replace(arm_verdict, line=line)


def pending_text(num_open: int, unit: str) -> str:
    """Return the text of a comparison of which no seed of both arms has finished."""
    return f"no result yet: {amount(num_open, unit)} not run"


def _withhold_if_untested(verdict: ArmVerdict, untested_reason: UntestedReason | None) -> ArmVerdict:
    """Return the verdict; withhold it if there is an `untested_reason`."""
    if untested_reason is None or verdict.difference is None:
        return verdict
    text = f"{untested_reason.name}: {untested_reason.text}"
    return replace(
        verdict,
        kind="undecided",
        text=text,
        p=None,
        outlooks=(),
        missing=0,
        withheld=untested_reason.code,
        exploratory=False,
    )


def _undecided_text(verdict: Verdict, chances: Sequence[DecisionChance], unit: str) -> str:
    """Return the text of an undecided verdict, with the chance that twice as many units decide it."""
    if not chances:
        return verdict.text
    single_chance = chances[TIMES.index(1.0)]
    chance = (
        f"{amount(single_chance.more, f'more {unit}')} would decide it in {single_chance.chance:.0%} of cases"
    )
    return f"{verdict.text}{';' if verdict.withheld else ':'} {chance}"


RIDERS: Mapping[Coverage, str] = {
    "one search": " at the settings found by one search",
    "repeated searches": "",
    "given settings": "",
}
"""Text added to a verdict to state for which settings it holds."""


def interval_coverage(plan: Plan, arms: Iterable[str]) -> Coverage:
    """Return what the intervals of differences between `arms` hold for."""
    if plan.search is None or not any(plan.arm(name).is_searched for name in arms):
        return "given settings"
    return "one search" if plan.repeats == 1 else "repeated searches"


def _add_reason(
    verdict: Verdict,
    contrast: Contrast,
    metric: str,
    results: SeedResults,
    *,
    missing: MissingSeeds,
    few: bool,
) -> Verdict:
    """Return the verdict; if it is withheld, add the reason.

    Args:
        verdict: The verdict without a reason.
        contrast: The arm and its reference.
        metric: The primary outcome.
        results: Results of the confirm trials.
        missing: Seeds without a value.
        few: Whether no verdict would be possible even if all seeds had values.
    """
    has_own_failures = any(results.failed_seeds(arm) for arm, _ in contrast.pairs)
    if missing.failed and not missing.unmeasured and not has_own_failures:
        # All seeds of the arm finished, so the text must name the reference whose seeds failed.
        verdict = replace(verdict, text=f"{verdict.text} in {contrast.reference}")
    addition = ""
    if missing.spoiled and not missing.num_open and not few:
        bounds = difference_bounds(contrast.pairs, metric, results)
        addition = withheld_reason(bounds, metric, MOST_MISSING)
    if missing.unmeasured:
        return replace(
            verdict, text=f"undecided: {missing.words}{addition}", withheld=f"{missing.words}{addition}"
        )
    if missing.failed:
        return replace(verdict, text=f"{verdict.text}{addition}", withheld=f"{verdict.withheld}{addition}")
    if missing.num_open:
        text = f"undecided: {amount(missing.num_open, missing.unit)} not run"
        return replace(verdict, kind="undecided", text=text)
    if not results.all_values(metric):
        return replace(verdict, text="undecided: it is in the last report of no trial")
    if lacks := _arms_without_value(contrast.arms, metric, results):
        reason = f"no seed of {' and of '.join(lacks)} measured it"
        return replace(verdict, text=f"undecided: {reason}", withheld=reason)
    return verdict


def _plan_order(plan: Plan) -> Callable[[Contrast], int]:
    """Return a sort key for contrasts: arms in the order of the plan, then contrasts over contexts."""
    places = {arm.name: place for place, arm in enumerate(plan.arms)}
    return lambda contrast: places.get(contrast.arm, len(places))


def _difference_range(contrast: Contrast, metric: str, results: SeedResults) -> tuple[float, float]:
    """Return the possible range of values of the contrast."""
    spans = [results.span_of_difference(metric, *pair) for pair in contrast.pairs]
    return fmean(low for low, _ in spans), fmean(high for _, high in spans)


def _arms_without_value(arms: Iterable[str], metric: str, results: SeedResults) -> list[str]:
    """Return the arms in `arms` that have finished seeds, but no value of the metric."""
    return [arm for arm in arms if results.finished_seeds(arm) and not results.by_seed(arm, metric)]


def _completion_text(
    plan: Plan, contrast: Contrast, metric: str, results: SeedResults, to_run: Mapping[str, set[int]]
) -> str:
    """Return how many seeds have a value: `5 of 8 seeds finished`, `5 of 8 seeds measured it`."""
    arms = [arm for arm, _ in contrast.pairs]
    finished_units = results.complete_units(set.intersection(*map(results.finished_seeds, arms)))
    failed_seeds = {seed: kind for arm in arms for seed, kind in results.failed_seeds(arm).items()}
    every = {*failed_seeds}.union(*(results.finished_seeds(arm) | to_run.get(arm, set()) for arm in arms))
    num_units = len({*map(results.unit_of, every)}) or plan.num_units
    unit = results.unit
    scope_text = " in every context" if contrast.contexts else ""
    measured_by_none = _arms_without_value(arms, metric, results) and results.all_values(metric)
    if NOT_MEASURED not in failed_seeds.values() and not measured_by_none:
        return f"{len(finished_units)} of {amount(num_units, unit)} finished{scope_text}"
    measured_by = [{*mean_by_seed(results.by_seed(arm, metric))} for arm in arms]
    complete_units = results.complete_units(set.intersection(*measured_by))
    return f"{len(complete_units)} of {amount(num_units, unit)} measured it{scope_text}"


def _comparisons_at_looks(early: Mapping[str, EarlyVerdict]) -> dict[Key, PairedEstimate]:
    return {
        (arm, metric): estimate
        for arm, verdict in early.items()
        for metric, estimate in verdict.found.items()
    }


def _verdict_at_look(plan: Plan, decision: EarlyVerdict, metric: str, results: SeedResults) -> ArmVerdict:
    """Return the verdict of the look that decided the arm; later seeds of the reference do not change it."""
    verdict, estimate = decision.verdicts[metric], decision.found[metric]
    reference = plan.arm(decision.arm).reference
    covers = interval_coverage(plan, (decision.arm, reference))
    arm_verdict = ArmVerdict(
        arm=decision.arm,
        reference=reference,
        metric=metric,
        kind=verdict.kind,
        text=verdict.text if verdict.kind == "undecided" else verdict.text + RIDERS[covers],
        difference=paired_estimate(estimate, results.span_of_difference(metric, decision.arm, reference)),
        p=estimate.p,
        level=decision.level,
        seeds=decision_time(plan, decision),
        looked=True,
        covers=covers,
        context=assignments(plan.arm(decision.arm).context),
        wins=paired_win_share(estimate, better_direction(results.known(metric), metric, plan.search)),
    )
    arm_verdict = _withhold_if_untested(
        arm_verdict, find_untested_reason(plan, ((decision.arm, reference),), metric, results)
    )
    return replace(arm_verdict, line=verdict_line(arm_verdict, plan.answer))


def too_few_differences(paired: PairedEstimate | None) -> tuple[float, ...]:
    """Return the differences by seed, or repeat, if they are too few for a verdict; empty otherwise."""
    if paired is None or paired.missing or not 1 < paired.n < SEEDS_LEAST:
        return ()
    return tuple(paired.by_seed[unit] for unit in sorted(paired.by_seed))


def verdict_line(
    verdict: ArmVerdict,
    answer: AnswerPlan | None,
    contexts: Sequence[str] = (),
    *,
    too_few: Sequence[float] = (),
) -> str:
    """Return one line with the verdict, difference, p-value and seeds of an arm.

    Args:
        verdict: The verdict.
        answer: Primary outcomes and margin.
        contexts: Contexts of a verdict on their mean.
        too_few: Differences that replace the interval, which is meaningless for so few.
    """
    margin = answer.margin if answer is not None and verdict.metric == answer.outcomes[0] else None
    against_text = f"against {verdict.reference}"
    arm = f"{verdict.arm}, mean over {listed(contexts)}" if contexts else verdict.arm
    if verdict.difference is None:
        return f"{arm}: {verdict.text} ({verdict.metric} {against_text}, {verdict.seeds})"
    if too_few:
        values = " and ".join(format_number(value, "+") for value in too_few)
        return f"{arm}: {verdict.text} ({verdict.metric} {values} {against_text}, {verdict.seeds})"
    p = "" if verdict.p is None else f", p={format_p(verdict.p, verdict.level)}"
    difference = format_interval(verdict.difference, "+", margin)
    return f"{arm}: {verdict.text} ({verdict.metric} {difference} {against_text}{p}, {verdict.seeds})"


def open_seeds(plan: Plan, ended_ids: frozenset[str]) -> dict[str, set[int]]:
    """Return the seeds of each arm that have not ended."""
    seeds_by_arm: dict[str, set[int]] = defaultdict(set)
    for trial in plan.trials:
        if trial.phase == "confirm" and trial.trial_id not in ended_ids:
            seeds_by_arm[trial.arm].add(trial.seed)
    return seeds_by_arm


def _lacks_values(
    missing: MissingSeeds, pairs: Sequence[tuple[str, str]], metric: str, results: SeedResults
) -> bool:
    """Return whether seeds have not ended, or have no value of this metric."""
    if missing.num_open or not missing.spoiled:
        return missing.num_open > 0
    return difference_bounds(pairs, metric, results) != {}


def _missing_seeds(arms: Sequence[str], results: SeedResults, to_run: Mapping[str, set[int]]) -> MissingSeeds:
    ways = [failed_seed for arm in arms for failed_seed in results.failed_seeds(arm).items()]
    failed_units = {results.unit_of(seed) for seed, kind in ways if kind != NOT_MEASURED}
    unmeasured = {results.unit_of(seed) for seed, _ in ways} - failed_units
    waiting_units = {results.unit_of(seed) for arm in arms for seed in to_run.get(arm, set())}
    return MissingSeeds(len(failed_units), len(unmeasured), len(waiting_units), results.unit)


def early_verdicts(plan: Plan, results: SeedResults) -> dict[str, EarlyVerdict]:
    """Return the verdicts at looks by arm, computed again from the values of the trials."""
    if plan.confirm is None or plan.confirm.stop is None or plan.answer is None:
        return {}
    confirmed: dict[tuple[str, int], Mapping[str, float] | None] = {}
    for record in results.records:
        if record.outcome is not None and record.outcome.final and record.outcome is not OutcomeKind.SKIPPED:
            metrics = record.last.metrics if record.last is not None else None
            confirmed[record.arm, record.seed] = metrics_for_look(record.outcome, metrics)
    return decisions(plan, confirmed)


def decision_time(plan: Plan, decision: EarlyVerdict) -> str:
    """Return the number of seeds or repeats at which an arm was decided, and the level of its interval."""
    seeds = amount(plan.num_units, plan.unit)
    return f"ended after {decision.seeds} of {seeds}, interval at level {decision.level:g}"
