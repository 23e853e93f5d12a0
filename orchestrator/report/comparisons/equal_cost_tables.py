"""Create tables of arms at equal cost, and of effects of settings, as rows of text."""

from collections.abc import Iterator, Sequence

from orchestrator.plan.display.format import amount
from orchestrator.report.comparisons.equal_cost import EqualCost
from orchestrator.report.results.number_words import interval_words, worded
from orchestrator.report.results.statistics import Estimate
from orchestrator.report.results.types import Grid, Report

EQUAL = (
    "exploratory: arms at the cost of what they are compared with, each seed's own readings interpolated, "
    "never extrapolated: {means}"
)
OF_BEST = "; of several assignments the best of each arm alone"
SETTINGS = "exploratory: other settings minus as trained, paired by seed: {means}"


def tables(report: Report) -> Iterator[Grid]:
    """Yield the tables, if the report has re-evaluations under other settings."""
    if report.equal_costs:
        headers = ("arm", "outcome", "cost", "its own", "equal", "by", "as trained", "at equal cost")
        title = EQUAL.format(means=_means([*_equal(report)])) + (OF_BEST if report.assignments > 1 else "")
        rows = tuple(_row(each, report.unit) for each in report.equal_costs)
        yield Grid(title, headers, rows, stacked=True)
    if report.setting_effects:
        metrics = tuple(dict.fromkeys(each.metric for each in report.setting_effects))
        found = {(each.arm, each.setting, each.metric): each.estimate for each in report.setting_effects}
        lost = {(cell.arm, cell.setting, cell.metric): cell.failed for cell in report.posthoc}
        rows = tuple(
            (
                arm,
                setting,
                *(
                    _of_seeds(each, each.n + lost.get((arm, setting, metric), 0))
                    if (each := found.get((arm, setting, metric)))
                    else "-"
                    for metric in metrics
                ),
            )
            for arm, setting in dict.fromkeys((each.arm, each.setting) for each in report.setting_effects)
        )
        title = SETTINGS.format(means=_means([*found.values()]))
        yield Grid(title, ("arm", "setting", *metrics), rows, stacked=True)


def _equal(report: Report) -> Iterator[Estimate]:
    """Yield all estimates of the table at equal cost."""
    for each in report.equal_costs:
        yield from (each.as_trained, *([each.equal] if each.equal is not None else []))


def _means(found: Sequence[Estimate]) -> str:
    return worded(
        found, intervals="mean [95% interval of each alone] (n)", means="mean (n)", one="in one seed (n)"
    )


def _of_seeds(found: Estimate, seeds: int) -> str:
    """Return an estimate with its number of seeds, e.g. `3`, or `3 of 5 finished` if some have no value."""
    counted = str(found.n) if found.n == seeds else f"{found.n} of {seeds} finished"
    return f"{interval_words(found, '+')} ({counted})"


def _row(each: EqualCost, unit: str) -> tuple[str, ...]:
    return (
        each.arm,
        each.outcome,
        each.cost,
        amount(each.own_cost),
        amount(each.cost_of_reference),
        each.path or "-",
        _of_seeds(each.as_trained, each.seeds),
        _at_equal_cost(each, unit),
    )


def _at_equal_cost(each: EqualCost, unit: str) -> str:
    if each.equal is not None:
        return f"{interval_words(each.equal, '+')} ({each.equal.n})"
    if not each.path:
        return "not known: read under no other setting"
    return f"not known: {each.reached} of {each.seeds} {unit}s reach that cost"
