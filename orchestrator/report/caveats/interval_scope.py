"""State what the intervals of a report account for, as required by conference checklists."""

from typing import Final

from orchestrator.plan.types import Plan
from orchestrator.report.caveats.caveat_types import IntervalScope
from orchestrator.report.comparisons.untested import unchecked_splits
from orchestrator.report.results.seed_results import SeedResults
from orchestrator.report.results.types import Report
from search_spaces.paths import MISSING, lookup
from search_spaces.wording import amount

SCOPE_TAG: Final = "intervals"
"""Name of the MLflow tag that holds the scope of intervals."""


def interval_scope(plan: Plan, report: Report, results: SeedResults) -> IntervalScope | None:
    """Return the variation that intervals of differences account for; None if there are no intervals."""
    answer = report.answer
    if answer is None or not any(estimate.low is not None for estimate in report.differences):
        return None
    is_built_in = plan.trainable is None
    seeds = "training seeds (initial weights, order of the data, dropout)"
    varied = [seeds if is_built_in else "random numbers that the training code draws from its seeds"]
    shared: list[str] = []
    if plan.search is not None and any(arm.is_searched for arm in plan.arms):
        (varied if plan.repeats > 1 else shared).append("variance between searches")
    if plan.confirm is not None and plan.confirm.resample_data:
        varied.append("the sampling of the data")
    elif is_built_in and lookup(plan.baseline.settings, "task.data_seed") is not MISSING:
        shared.append("the sampling of the data (all seeds share task.data_seed)")
    elif is_built_in:
        shared.append("the data set")
    return IntervalScope(
        varied=tuple(varied),
        shared=tuple(shared),
        method="moderated paired t" if any(verdict.prior for verdict in report.verdicts) else "paired t",
        level=answer.level,
        comparisons=answer.family,
        unchecked_tests=unchecked_splits(plan, answer, results),
    )


def format_scope(scope: IntervalScope | None) -> str:
    """Return the scope as one line; empty if no difference has an interval."""
    if scope is None:
        return ""
    exclusion = f", not {' or '.join(scope.shared)}" if scope.shared else ""
    comparisons = amount(scope.comparisons, "comparison")
    correction = f", corrected by Bonferroni for {comparisons}" if scope.comparisons > 1 else ""
    unchecked = (
        f" Not checked: whether all arms had the same examples of {', '.join(scope.unchecked_tests)}. Report "
        f"a text {scope.unchecked_tests[0]}/digest to enable the check."
        if scope.unchecked_tests
        else ""
    )
    return (
        f"Intervals and p-values of differences account for {' and '.join(scope.varied)}{exclusion}: "
        f"{scope.method} at level {scope.level:g}{correction}.{unchecked}"
    )
