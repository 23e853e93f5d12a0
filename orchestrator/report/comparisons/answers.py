"""Compare arms with their references: verdicts on primary outcomes, estimates of all other metrics.

Primary outcomes are tested by the procedure of `statistics`. An arm that was decided before its last seed has
the verdict of the look that decided it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

from orchestrator.conductor.rounds import metrics_for_look, verdicts_at_looks
from orchestrator.plan.answer import answer_plan, metric_splits
from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.comparisons.contrasts import Comparisons, Contrast, contrast_groups, paired_seeds
from orchestrator.report.comparisons.failed_seeds import difference_bounds, withheld_reason
from orchestrator.report.comparisons.untested import find_untested_reason
from orchestrator.report.results.extensions import exploratory_reason
from orchestrator.report.results.number_formats import format_interval, format_number, format_p
from orchestrator.report.results.seed_results import NOT_MEASURED_FAILURE, Pairs, SeedResults, mean_by_seed
from orchestrator.report.results.statistics import (
    estimate,
    paired_estimate,
    paired_win_share,
    sign_flip_p,
    win_share,
)
from orchestrator.report.results.types import ArmVerdict, Coverage, Effect
from orchestrator.spec.scalars import assignments
from orchestrator.statistics.decision_chance import UNIT_MULTIPLES, DecisionChance, decision_chances
from orchestrator.statistics.missing import MAX_MISSING_UNITS
from orchestrator.statistics.paired import Key, PairedEstimate
from orchestrator.statistics.sequential import EarlyVerdict
from orchestrator.statistics.verdicts import MIN_VERDICT_SEEDS, Verdict, verdict
from orchestrator.trials import OutcomeKind, Record
from search_spaces.wording import amount, join_words
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
    def num_lost(self) -> int:
        """Return the number of seeds that will never have a value."""
        return self.failed + self.unmeasured

    @property
    def reason_text(self) -> str:
        """Return as text why some seeds will never have a value."""
        lack = "lacks" if self.unmeasured == 1 else "lack"
        missing = f"{amount(self.unmeasured, self.unit)} {lack} a primary outcome"
        failed = f"{amount(self.failed, self.unit)} failed"
        return ", ".join([failed] * bool(self.failed) + [missing] * bool(self.unmeasured))


def resolve_answer(plan: Plan, metrics: Sequence[Metric], metric_names: Sequence[str]) -> AnswerPlan | None:
    """Return the primary outcomes and the level of a plan; None without confirm trials.

    If the plan could not determine the metrics, the first measured metric is the outcome. Older plans have no
    answer; their outcome is the headline quantity.
    """
    if plan.confirm is None:
        return None
    num_compared = sum(bool(arm.reference) for arm in plan.arms)
    splits_by_metric = metric_splits(plan.search, plan.confirm, plan.answer)
    quantities = {*metric_names, *map(splits_by_metric.quantity, metric_names)}
    known_metrics = [metric for metric in metrics if metric.name in quantities]
    plan_of_answer = plan.answer or answer_plan(None, plan.confirm, plan.search, known_metrics, num_compared)
    if plan_of_answer.outcomes:
        may_lack_split = plan.search is None and not plan.confirm.splits
        outcomes = plan_of_answer.outcomes
        reported = _reported_names(outcomes, metric_names) if may_lack_split else outcomes
        return replace(plan_of_answer, outcomes=reported)
    validation_splits = () if plan.search else (*splits_by_metric.selection, "")
    splits = plan.confirm.splits[:1] or validation_splits
    candidate_names = [name for name in metric_names if splits_by_metric.split(name) in splits]
    return replace(plan_of_answer, outcomes=tuple(candidate_names[:1]))


def _reported_names(outcomes: Sequence[str], metric_names: Sequence[str]) -> tuple[str, ...]:
    """Return the outcomes by reported name, which lacks the split if no trial reports it with the split."""
    quantities = {name: split_and_quantity(name)[1] for name in outcomes if name not in metric_names}
    return tuple(quantities[name] if quantities.get(name) in metric_names else name for name in outcomes)


def arm_effects(comparisons: Comparisons, metrics: Sequence[str]) -> Iterator[Effect]:
    """Yield the difference of every arm to its reference, metric by metric.

    Only primary outcomes have p-values and corrected intervals.
    """
    plan, results = comparisons.plan, comparisons.results
    verdicts_by_arm = early_verdicts(plan, results)
    primary = comparisons.primary | _comparisons_at_looks(verdicts_by_arm)
    pairs = [(arm.name, arm.reference) for arm in plan.arms if arm.reference]
    for metric, pair in product(dict.fromkeys((*comparisons.answer.outcomes, *metrics)), pairs):
        differences = paired_seeds((pair,), metric, results)
        if not differences.by_unit:
            continue
        values = list(differences.by_unit.values())
        primary_estimate = primary.get((pair[0], metric))
        untested_reason = primary_estimate and find_untested_reason(plan, (pair,), metric, results)
        missing = _missing_seeds(pair, comparisons)
        lacks_values = pair[0] not in verdicts_by_arm and _lacks_values(missing, (pair,), metric, results)
        is_complete = not lacks_values and not untested_reason
        is_tested = primary_estimate is not None and (
            is_complete or (primary_estimate.num_missing > 0 and not untested_reason)
        )
        span = results.span_of_difference(metric, *pair)
        mean_difference = (
            paired_estimate(primary_estimate, span) if primary_estimate else estimate(values, span=span)
        )
        units = primary_estimate.differences.values() if primary_estimate else values
        yield Effect(
            arm=pair[0],
            reference=pair[1],
            metric=metric,
            estimate=mean_difference,
            pairs=differences.record_ids,
            primary=primary_estimate is not None,
            p=primary_estimate.p if primary_estimate and is_tested else None,
            p_sign_flips=sign_flip_p(values) if primary_estimate and is_complete else None,
            spread_raised=primary_estimate.is_spread_bounded if primary_estimate else False,
            wins=win_share(units, comparisons.goal(metric), has_interval=mean_difference.low is not None),
        )


def arm_verdicts(comparisons: Comparisons) -> Iterator[ArmVerdict]:
    """Yield one verdict per primary outcome and arm with a reference; contrasts over all contexts last."""
    plan, answer = comparisons.plan, comparisons.answer
    verdicts_by_arm = early_verdicts(plan, comparisons.results)
    positions = {arm.name: place for place, arm in enumerate(plan.arms)}
    contrasts = [contrast for group in contrast_groups(plan, answer) for contrast in group.contrasts]
    contrasts.sort(key=lambda contrast: positions.get(contrast.arm, len(positions)))
    for metric, contrast in product(answer.outcomes, contrasts):
        if contrast.arm in verdicts_by_arm:
            yield _verdict_at_look(comparisons, verdicts_by_arm[contrast.arm], metric)
        else:
            paired = comparisons.primary.get((contrast.arm, metric))
            yield make_verdict(comparisons, contrast, metric, paired)


def make_verdict(
    comparisons: Comparisons, contrast: Contrast, metric: str, paired: PairedEstimate | None
) -> ArmVerdict:
    """Return the verdict on a contrast in a primary outcome.

    Args:
        comparisons: Plan, results and open seeds of the sweep.
        contrast: The arm and its reference.
        metric: The primary outcome.
        paired: Estimate and test of the difference; None without a value.
    """
    plan, results = comparisons.plan, comparisons.results
    missing = _missing_seeds(contrast.arms, comparisons)
    is_untested = _lacks_values(missing, contrast.pairs, metric, results) and not (
        paired and paired.num_missing
    )
    has_few_seeds, margin = _has_few_seeds(paired), comparisons.margin(metric)
    goal, num_failed = comparisons.goal(metric), missing.num_lost if is_untested or paired is None else 0
    statement = verdict(paired, margin=margin, better=goal, num_failed=num_failed, unit=results.unit)
    if is_untested or paired is None:
        statement = _add_withheld_reason(
            statement, contrast, metric, results, missing, has_few_seeds=has_few_seeds
        )
    is_undecided, has_no_result = statement.kind == "undecided", paired is None and missing.num_open > 0
    # With a prior for the spread, the chance of a decision is unknown.
    has_own_spread = paired is not None and not has_few_seeds and paired.prior is None
    is_open = is_undecided and not is_untested and has_own_spread
    chances = decision_chances(paired, margin) if is_open and paired else ()
    coverage, exploratory = interval_coverage(plan, contrast.arms), exploratory_reason(plan, contrast.pairs)
    if has_no_result:
        text = pending_text(missing.num_open, results.unit)
    elif is_undecided:
        text = _undecided_text(statement, chances, results.unit)
    else:
        text = statement.text + COVERAGE_CLAUSES[coverage] + exploratory
    arm_verdict = ArmVerdict(
        arm=contrast.arm,
        reference=contrast.reference,
        metric=metric,
        kind=None if has_no_result else statement.kind,
        text=text,
        outlooks=chances,
        difference=paired_estimate(paired, _difference_range(contrast, metric, results)) if paired else None,
        p=paired.p if paired and not is_untested else None,
        level=comparisons.answer.level,
        seeds=_completion_text(comparisons, contrast, metric),
        context="" if contrast.contexts else assignments(plan.arm(contrast.arm).context),
        pooled=tuple(arm for arm, _ in contrast.pairs) if contrast.contexts else (),
        covers=coverage,
        missing=paired.num_missing if paired else 0,
        wins=paired_win_share(paired, goal) if paired else None,
        prior=paired.prior if paired and not paired.num_missing else None,
        waiting=missing.num_open,
        exploratory=bool(exploratory) and not has_no_result and not is_undecided,
    )
    return _complete_verdict(comparisons, arm_verdict, contrast, too_few=too_few_differences(paired))


def _has_few_seeds(paired: PairedEstimate | None) -> bool:
    """Return whether no verdict would be possible even if all seeds had values."""
    return paired is None or paired.n < MIN_VERDICT_SEEDS or paired.spread is None


def _complete_verdict(
    comparisons: Comparisons, verdict: ArmVerdict, contrast: Contrast, *, too_few: Sequence[float] = ()
) -> ArmVerdict:
    """Return the verdict with its line, withheld if the comparison cannot be tested."""
    reason = find_untested_reason(comparisons.plan, contrast.pairs, verdict.metric, comparisons.results)
    if reason is not None and verdict.difference is not None:
        verdict = replace(
            verdict,
            kind="undecided",
            text=f"{reason.name}: {reason.text}",
            p=None,
            outlooks=(),
            missing=0,
            withheld=reason.code,
            exploratory=False,
        )
    line = verdict_line(verdict, comparisons.margin(verdict.metric), contrast.contexts, too_few=too_few)
    return replace(verdict, line=line)


def pending_text(num_open: int, unit: str) -> str:
    """Return the text of a comparison of which no seed of both arms has finished."""
    return f"no result yet: {amount(num_open, unit)} not run"


def _undecided_text(verdict: Verdict, chances: Sequence[DecisionChance], unit: str) -> str:
    """Return the text of an undecided verdict, with the chance that twice as many units decide it."""
    if not chances:
        return verdict.text
    chance_of_doubling = chances[UNIT_MULTIPLES.index(1.0)]
    units_text = amount(chance_of_doubling.more, f"more {unit}")
    chance = f"{units_text} would decide it in {chance_of_doubling.chance:.0%} of cases"
    return f"{verdict.text}{';' if verdict.withheld else ':'} {chance}"


COVERAGE_CLAUSES: Mapping[Coverage, str] = {
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


def _add_withheld_reason(
    statement: Verdict,
    contrast: Contrast,
    metric: str,
    results: SeedResults,
    missing: MissingSeeds,
    *,
    has_few_seeds: bool,
) -> Verdict:
    """Return the verdict; if it is withheld, add the reason."""
    reason_suffix = ""
    if missing.num_lost and not missing.num_open and not has_few_seeds:
        bounds = difference_bounds(contrast.pairs, metric, results)
        reason_suffix = withheld_reason(bounds, metric, MAX_MISSING_UNITS)
    if missing.unmeasured:
        reason = f"{missing.reason_text}{reason_suffix}"
        return replace(statement, text=f"undecided: {reason}", withheld=reason)
    if missing.failed:
        # If all seeds of the arm finished, the text must name the reference whose seeds failed.
        has_own_failures = any(results.failed_seeds(arm) for arm, _ in contrast.pairs)
        place = "" if has_own_failures else f" in {contrast.reference}"
        text, withheld = f"{statement.text}{place}{reason_suffix}", f"{statement.withheld}{reason_suffix}"
        return replace(statement, text=text, withheld=withheld)
    if missing.num_open:
        text = f"undecided: {amount(missing.num_open, missing.unit)} not run"
        return replace(statement, kind="undecided", text=text)
    if not results.all_values(metric):
        return replace(statement, text="undecided: no trial has it in its last report")
    if arms_without_value := _arms_without_value(contrast.arms, metric, results):
        reason = f"no seed of {' and of '.join(arms_without_value)} measured it"
        return replace(statement, text=f"undecided: {reason}", withheld=reason)
    return statement


def _difference_range(contrast: Contrast, metric: str, results: SeedResults) -> tuple[float, float]:
    """Return the possible range of values of the contrast."""
    spans = [results.span_of_difference(metric, *pair) for pair in contrast.pairs]
    return fmean(low for low, _ in spans), fmean(high for _, high in spans)


def _arms_without_value(arms: Iterable[str], metric: str, results: SeedResults) -> list[str]:
    """Return the arms in `arms` that have finished seeds, but no value of the metric."""
    return [arm for arm in arms if results.finished_seeds(arm) and not results.by_seed(arm, metric)]


def _completion_text(comparisons: Comparisons, contrast: Contrast, metric: str) -> str:
    """Return how many seeds have a value: `5 of 8 seeds finished`, `5 of 8 seeds measured it`."""
    results, unended_seeds = comparisons.results, comparisons.unended_seeds
    arms = [arm for arm, _ in contrast.pairs]
    failed_seeds = {seed: kind for arm in arms for seed, kind in results.failed_seeds(arm).items()}
    all_seeds = {*failed_seeds}.union(
        *(results.finished_seeds(arm) | unended_seeds.get(arm, set()) for arm in arms)
    )
    num_units = len({*map(results.unit_of, all_seeds)}) or comparisons.plan.num_units
    measured_by_none = _arms_without_value(arms, metric, results) and results.all_values(metric)
    if NOT_MEASURED_FAILURE not in failed_seeds.values() and not measured_by_none:
        word, seeds_by_arm = "finished", [results.finished_seeds(arm) for arm in arms]
    else:
        word = "measured it"
        seeds_by_arm = [{*mean_by_seed(results.by_seed(arm, metric))} for arm in arms]
    complete_units = results.complete_units(set.intersection(*seeds_by_arm))
    scope_text = " in every context" if contrast.contexts else ""
    return f"{len(complete_units)} of {amount(num_units, results.unit)} {word}{scope_text}"


def _comparisons_at_looks(verdicts_by_arm: Mapping[str, EarlyVerdict]) -> dict[Key, PairedEstimate]:
    return {
        (arm, metric): paired
        for arm, look in verdicts_by_arm.items()
        for metric, paired in look.comparisons.items()
    }


def _verdict_at_look(comparisons: Comparisons, decision: EarlyVerdict, metric: str) -> ArmVerdict:
    """Return the verdict of the look that decided the arm; later seeds of the reference do not change it."""
    plan = comparisons.plan
    verdict, paired = decision.verdicts[metric], decision.comparisons[metric]
    pair = (decision.arm, plan.arm(decision.arm).reference)
    coverage = interval_coverage(plan, pair)
    arm_verdict = ArmVerdict(
        *pair,
        metric=metric,
        kind=verdict.kind,
        text=verdict.text if verdict.kind == "undecided" else verdict.text + COVERAGE_CLAUSES[coverage],
        difference=paired_estimate(paired, comparisons.results.span_of_difference(metric, *pair)),
        p=paired.p,
        level=decision.level,
        seeds=decision_time_text(plan, decision),
        looked=True,
        covers=coverage,
        context=assignments(plan.arm(decision.arm).context),
        wins=paired_win_share(paired, comparisons.goal(metric)),
    )
    return _complete_verdict(comparisons, arm_verdict, Contrast(*pair, pairs=(pair,)))


def too_few_differences(paired: PairedEstimate | None) -> tuple[float, ...]:
    """Return the differences by seed, or repeat, if they are too few for a verdict; empty otherwise."""
    if paired is None or paired.num_missing or not 1 < paired.n < MIN_VERDICT_SEEDS:
        return ()
    return tuple(paired.differences[unit] for unit in sorted(paired.differences))


def verdict_line(
    verdict: ArmVerdict, margin: float | None, contexts: Sequence[str] = (), *, too_few: Sequence[float] = ()
) -> str:
    """Return one line with the verdict, difference, p-value and seeds of an arm.

    Args:
        verdict: The verdict.
        margin: Smallest relevant difference in the outcome.
        contexts: Contexts of a verdict on their mean.
        too_few: Differences that replace the interval, which is meaningless for so few.
    """
    arm = f"{verdict.arm}, mean over {join_words(contexts)}" if contexts else verdict.arm
    p = "" if verdict.p is None else f", p={format_p(verdict.p, verdict.level)}"
    if verdict.difference is None:
        difference = ""
    elif too_few:
        difference, p = f" {' and '.join(format_number(value, '+') for value in too_few)}", ""
    else:
        difference = f" {format_interval(verdict.difference, '+', margin)}"
    against = f"against {verdict.reference}"
    return f"{arm}: {verdict.text} ({verdict.metric}{difference} {against}{p}, {verdict.seeds})"


def unended_seeds(plan: Plan, records: Iterable[Record]) -> dict[str, set[int]]:
    """Return the seeds of each arm that have not ended."""
    ended_ids = {record.trial_id for record in records if record.outcome and record.outcome.is_final}
    seeds_by_arm: dict[str, set[int]] = defaultdict(set)
    for trial in plan.trials:
        if trial.phase == "confirm" and trial.trial_id not in ended_ids:
            seeds_by_arm[trial.arm].add(trial.seed)
    return seeds_by_arm


def _lacks_values(missing: MissingSeeds, pairs: Pairs, metric: str, results: SeedResults) -> bool:
    """Return whether seeds have not ended, or have no value of this metric."""
    if missing.num_open or not missing.num_lost:
        return missing.num_open > 0
    return difference_bounds(pairs, metric, results) != {}


def _missing_seeds(arms: Iterable[str], comparisons: Comparisons) -> MissingSeeds:
    results, arms = comparisons.results, [*arms]
    failures = [failure for arm in arms for failure in results.failed_seeds(arm).items()]
    failed_units = {results.unit_of(seed) for seed, kind in failures if kind != NOT_MEASURED_FAILURE}
    unmeasured_units = {results.unit_of(seed) for seed, _ in failures} - failed_units
    waiting_units = {results.unit_of(seed) for arm in arms for seed in comparisons.unended_seeds.get(arm, ())}
    return MissingSeeds(len(failed_units), len(unmeasured_units), len(waiting_units), results.unit)


def early_verdicts(plan: Plan, results: SeedResults) -> dict[str, EarlyVerdict]:
    """Return the verdicts at looks by arm, computed again from the values of the trials."""
    if plan.confirm is None or plan.confirm.stop is None or plan.answer is None:
        return {}
    confirmed: dict[tuple[str, int], Mapping[str, float] | None] = {}
    for record in results.records:
        if (
            record.outcome is not None
            and record.outcome.is_final
            and record.outcome is not OutcomeKind.SKIPPED
        ):
            metrics = record.last.metrics if record.last is not None else None
            confirmed[record.arm, record.seed] = metrics_for_look(record.outcome, metrics)
    return verdicts_at_looks(plan, confirmed)


def decision_time_text(plan: Plan, decision: EarlyVerdict) -> str:
    """Return the number of seeds or repeats at which an arm was decided, and the level of its interval."""
    seeds = amount(plan.num_units, plan.unit)
    return f"ended after {decision.num_seeds} of {seeds}, interval at level {decision.level:g}"
