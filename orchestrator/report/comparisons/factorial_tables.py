"""Create tables of main effects and interactions as rows of text."""

from collections.abc import Iterator, Sequence

from orchestrator.report.comparisons.factorial import FactorialEffect
from orchestrator.report.results.number_formats import format_interval, format_number, format_p
from orchestrator.report.results.types import Grid, Report
from search_spaces.wording import amount

MAX_LISTED = 2
"""Maximum number of missing seeds explained in a row; report.json has all of them."""


def tables(report: Report) -> Iterator[Grid]:
    """Yield one table per outcome, each followed by one with the value of every seed or repeat."""
    for metric in dict.fromkeys(effect.metric for effect in report.factorial):
        metric_effects = [effect for effect in report.factorial if effect.metric == metric]
        has_several_cells = len({effect.cell for effect in metric_effects}) > 1
        family = (
            f"{amount(metric_effects[0].family, 'contrast')} together at level {metric_effects[0].level:g}"
        )
        headers_of_missing = ("lacking",) if any(effect.lacking for effect in metric_effects) else ()
        headers = ("components", f"{report.unit}s", "effect", "p", *headers_of_missing)
        rows = [
            (
                _effect_name(effect, has_several_cells),
                *_effect_cells(effect, report),
                *([_missing_text(effect.lacking)] if headers_of_missing else []),
            )
            for effect in metric_effects
        ]
        effects = "exploratory main effects (with minus without) and interactions"
        title = f"{metric}, {effects}: mean and interval, {family}"
        yield Grid(title, headers, tuple(rows))
        yield from _seed_table(report, metric, metric_effects, several=has_several_cells)


def _seed_table(
    report: Report, metric: str, effects: Sequence[FactorialEffect], *, several: bool
) -> Iterator[Grid]:
    """Yield a table of the values of all seeds, because a mean hides a seed that collapsed."""
    units = [unit for unit, _ in report.unit_seeds if any(unit in dict(effect.by_seed) for effect in effects)]
    if not units:
        return
    rows = []
    for effect in effects:
        values = dict(effect.by_seed)
        rows.append(
            (_effect_name(effect, several), *(format_number(values.get(unit), "+") or "-" for unit in units))
        )
    title = f"{metric}, main effects and interactions {report.unit} by {report.unit}"
    yield Grid(title, ("components", *map(str, units)), tuple(rows))


def _effect_name(effect: FactorialEffect, has_several_cells: bool) -> str:
    words = " x ".join(effect.components)
    return f"{words} ({effect.cell})" if has_several_cells else words


def _effect_cells(effect: FactorialEffect, report: Report) -> tuple[str, str, str]:
    n, planned = len(effect.by_seed), len(report.unit_seeds)
    return (
        f"{n} of {planned}",
        f"no value: no {report.unit} has all arms"
        if effect.estimate is None
        else format_interval(effect.estimate, "+"),
        f"none, all {report.unit}s are alike"
        if effect.alike
        else "-"
        if effect.p is None
        else format_p(effect.p, effect.level),
    )


def _missing_text(missing_names: Sequence[str]) -> str:
    num_omitted = len(missing_names) - MAX_LISTED
    return "; ".join(
        [
            *missing_names[:MAX_LISTED],
            *([f"and {amount(num_omitted, 'more seed')}"] if num_omitted > 0 else []),
        ]
    )
