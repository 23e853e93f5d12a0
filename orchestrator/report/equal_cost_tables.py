"""What arms are worth at equal cost, and what settings do, as rows of text."""

from collections.abc import Iterator

from orchestrator.plan.format import amount
from orchestrator.report.equal_cost import EqualCost
from orchestrator.report.types import Report, Rows, interval_words

EQUAL = (
    "exploratory: arms at the cost of what they are compared with, each seed's own readings interpolated, "
    "never extrapolated"
)
SETTINGS = "exploratory: other settings minus as trained, paired by seed: mean [95% interval] (n)"


def tables(report: Report) -> Iterator[Rows]:
    """Those of a report that has readings under other settings."""
    if report.equal_costs:
        headers = ("arm", "outcome", "cost", "its own", "equal", "by", "as trained", "at equal cost")
        yield EQUAL, headers, tuple(map(_row, report.equal_costs))
    if report.setting_effects:
        metrics = tuple(dict.fromkeys(each.metric for each in report.setting_effects))
        found = {(each.arm, each.setting, each.metric): each.estimate for each in report.setting_effects}
        rows = tuple(
            (
                arm,
                setting,
                *(
                    f"{interval_words(each, '+')} ({each.n})"
                    if (each := found.get((arm, setting, metric)))
                    else "-"
                    for metric in metrics
                ),
            )
            for arm, setting in dict.fromkeys((each.arm, each.setting) for each in report.setting_effects)
        )
        yield SETTINGS, ("arm", "setting", *metrics), rows


def _row(each: EqualCost) -> tuple[str, ...]:
    return (
        each.arm,
        each.outcome,
        each.cost,
        amount(each.own_cost),
        amount(each.cost_of_reference),
        each.path or "-",
        f"{interval_words(each.as_trained, '+')} ({each.as_trained.n})",
        _at_equal_cost(each),
    )


def _at_equal_cost(each: EqualCost) -> str:
    if each.equal is not None:
        return f"{interval_words(each.equal, '+')} ({each.equal.n})"
    if not each.path:
        return "not known: read under no other setting"
    return f"not known: {each.reached} of {each.seeds} seeds reach that cost"
