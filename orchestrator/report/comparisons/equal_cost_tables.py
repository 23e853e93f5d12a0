"""Create tables of arms at equal cost, and of effects of settings, as rows of text."""

from collections.abc import Iterator

from orchestrator.plan.display.format import format_amount
from orchestrator.report.comparisons.equal_cost import EqualCost
from orchestrator.report.results.number_formats import format_interval
from orchestrator.report.results.statistics import Estimate
from orchestrator.report.results.types import Report, TextTable

EQUAL_COST_TITLE = (
    "exploratory: arms at the cost of their references, interpolated between the re-evaluations of each "
    "seed: mean [95% interval of each alone] (n)"
)
BEST_PARAMS_CLAUSE = "; only the best params of each arm"
SETTING_EFFECTS_TITLE = (
    "exploratory: other settings minus as trained, paired by seed: mean [95% interval of each alone] (n)"
)


def equal_cost_tables(report: Report) -> Iterator[TextTable]:
    """Yield the tables, if the report has re-evaluations under other settings."""
    if report.equal_costs:
        headers = ("arm", "outcome", "cost", "its own", "equal", "by", "as trained", "at equal cost")
        title = EQUAL_COST_TITLE + (BEST_PARAMS_CLAUSE if report.assignments > 1 else "")
        rows = tuple(_equal_cost_row(row, report.unit) for row in report.equal_costs)
        yield TextTable(title, headers, rows, stacked=True)
    if effects := {(row.arm, row.setting, row.metric): row.estimate for row in report.setting_effects}:
        metrics = dict.fromkeys(metric for _, _, metric in effects)
        num_failed = {(cell.arm, cell.setting, cell.metric): cell.failed for cell in report.posthoc}

        def format_cell(key: tuple[str, str, str]) -> str:
            estimate = effects.get(key)
            return _format_with_seeds(estimate, estimate.n + num_failed.get(key, 0)) if estimate else "-"

        settings = dict.fromkeys((arm, setting) for arm, setting, _ in effects)
        rows = tuple(
            (*setting, *(format_cell((*setting, metric)) for metric in metrics)) for setting in settings
        )
        yield TextTable(SETTING_EFFECTS_TITLE, ("arm", "setting", *metrics), rows, stacked=True)


def _format_with_seeds(estimate: Estimate, seeds: int) -> str:
    """Return an estimate with its number of seeds, e.g. `3`, or `3 of 5 finished` if some have no value."""
    count_text = str(estimate.n) if estimate.n == seeds else f"{estimate.n} of {seeds} finished"
    return f"{format_interval(estimate, '+')} ({count_text})"


def _equal_cost_row(comparison: EqualCost, unit: str) -> tuple[str, ...]:
    return (
        comparison.arm,
        comparison.outcome,
        comparison.cost,
        format_amount(comparison.own_cost),
        format_amount(comparison.cost_of_reference),
        comparison.path or "-",
        _format_with_seeds(comparison.as_trained, comparison.seeds),
        _format_equal_cost(comparison, unit),
    )


def _format_equal_cost(comparison: EqualCost, unit: str) -> str:
    if comparison.equal is not None:
        return f"{format_interval(comparison.equal, '+')} ({comparison.equal.n})"
    if not comparison.path:
        return "unknown: not evaluated under other settings"
    return f"unknown: {comparison.reached} of {comparison.seeds} {unit}s reach this cost"
