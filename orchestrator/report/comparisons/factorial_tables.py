"""Create tables of main effects and interactions as rows of text."""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.report.comparisons.factorial import FactorialEffect
from orchestrator.report.results.number_formats import format_interval, format_number, format_p
from orchestrator.report.results.types import Report, TextTable
from search_spaces.wording import amount

MAX_LISTED_SEEDS = 2
"""Maximum number of missing seeds explained in a row; report.json has all of them."""


def factorial_tables(report: Report) -> Iterator[TextTable]:
    """Yield one table per outcome, each followed by one with the value of every seed or repeat."""
    for metric in dict.fromkeys(effect.metric for effect in report.factorial):
        effects = [effect for effect in report.factorial if effect.metric == metric]
        has_several_cells = len({effect.cell for effect in effects}) > 1
        names = [_effect_name(effect, has_several_cells) for effect in effects]
        family = f"{amount(effects[0].family, 'contrast')} together at level {effects[0].level:g}"
        rows = [(name, *_effect_cells(effect, report)) for name, effect in zip(names, effects, strict=True)]
        headers: tuple[str, ...] = ("components", f"{report.unit}s", "effect", "p", "lacking")
        if not any(effect.lacking for effect in effects):
            headers, rows = headers[:-1], [row[:-1] for row in rows]
        kinds = "exploratory main effects (with minus without) and interactions"
        yield TextTable(f"{metric}, {kinds}: mean and interval, {family}", headers, tuple(rows))
        yield from _seed_table(report, metric, dict(zip(names, effects, strict=True)))


def _seed_table(report: Report, metric: str, effects: Mapping[str, FactorialEffect]) -> Iterator[TextTable]:
    """Yield a table of the values of all seeds, because a mean hides a seed that collapsed."""
    values = {name: dict(effect.by_seed) for name, effect in effects.items()}
    units = [unit for unit, _ in report.unit_seeds if any(unit in by_unit for by_unit in values.values())]
    rows = tuple(
        (name, *(format_number(by_unit.get(unit), "+") or "-" for unit in units))
        for name, by_unit in values.items()
    )
    if units:
        title = f"{metric}, main effects and interactions {report.unit} by {report.unit}"
        yield TextTable(title, ("components", *map(str, units)), rows)


def _effect_name(effect: FactorialEffect, has_several_cells: bool) -> str:
    words = " x ".join(effect.components)
    return f"{words} ({effect.cell})" if has_several_cells else words


def _effect_cells(effect: FactorialEffect, report: Report) -> tuple[str, ...]:
    unit, estimate = report.unit, effect.estimate
    p = "-" if effect.p is None else format_p(effect.p, effect.level)
    return (
        f"{len(effect.by_seed)} of {len(report.unit_seeds)}",
        f"no value: no {unit} has all arms" if estimate is None else format_interval(estimate, "+"),
        f"none, all {unit}s are alike" if effect.alike else p,
        _missing_text(effect.lacking),
    )


def _missing_text(reasons: Sequence[str]) -> str:
    num_omitted = len(reasons) - MAX_LISTED_SEEDS
    omitted_text = [f"and {amount(num_omitted, 'more seed')}"] if num_omitted > 0 else []
    return "; ".join([*reasons[:MAX_LISTED_SEEDS], *omitted_text])
