"""Create the tables of a report, and render them for the terminal and as Markdown."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.plan.display.format import count, setting_words
from orchestrator.report.comparisons import crossed_tables, equal_cost_tables, factorial_tables, repeat_tables
from orchestrator.report.results import arm_changes
from orchestrator.report.results.contexts import by_context, titled
from orchestrator.report.results.number_words import (
    interval_words,
    number_words,
    p_words,
    win_title,
    win_words,
    worded,
)
from orchestrator.report.results.statistics import Estimate
from orchestrator.report.results.types import ArmVerdict, Cell, Effect, Grid, Report, ended_word
from search_spaces.wording import amount, markdown_line, one_line

if TYPE_CHECKING:
    from rich.table import Table

FLOOR_ROW = "floor"
"""Beginning of the names of floor rows."""


NO_SPLIT = "no split"
"""Heading of metrics without a split in the name or the spec, such as `eval_loss`."""


def grids(report: Report) -> list[Grid]:
    """Return all tables of a report: arms and their changes, verdicts, results, how trials ended."""
    found = searches(report)
    return [*changes(report), *answers(report), *metrics(report), *costs(report), *found, tallies(report)]


def _in_each_context(report: Report, make: Callable[[Report], list[Grid]]) -> list[Grid]:
    """Return the tables of `make` for each context."""
    return [
        replace(grid, title=titled(context, grid.title))
        for context, part in by_context(report)
        for grid in make(part)
    ]


def metrics(report: Report) -> list[Grid]:
    """Return tables of main effects, quantities and differences of arms as trained, by context."""
    return _in_each_context(report, _metrics)


def _metrics(report: Report) -> list[Grid]:
    factors = factorial_tables.tables(report)
    results = [_results(report, quantity) for quantity in _quantities(report)]
    return [*factors, *results, *_points(report), *_differences(report)]


def costs(report: Report) -> list[Grid]:
    """Return tables of re-evaluations, and of arms at equal cost, by context, then of published sizes."""
    return [*_in_each_context(report, _costs), *_published_sizes(report)]


def _published_sizes(report: Report) -> list[Grid]:
    rows = tuple(
        (each.system, _whole(each.parameters), _whole(each.macs), each.source)
        for each in report.published_sizes
    )
    headers = ("system", "parameters", "multiply-adds", "source")
    return [Grid("sizes as published; publications differ in what they count", headers, rows)] if rows else []


def _whole(value: float | None) -> str:
    return "" if value is None else count(round(value))


def _costs(report: Report) -> list[Grid]:
    return [*_posthoc(report), *equal_cost_tables.tables(report)]


def searches(report: Report) -> list[Grid]:
    """Return tables of the best search trial of each arm, by context, for a sweep without confirmation."""
    return _in_each_context(report, lambda part: [searched(part)] if part.searched else [])


def headlines(report: Report) -> list[Grid]:
    """Return the tables for the screen: one per context, and the verdicts over all contexts."""
    return [*_in_each_context(report, lambda part: [headline(part)]), *_pooled(report)]


def headline(report: Report) -> Grid:
    """Return the table for the screen: headline quantities and costs of every arm, then floors.

    For a search without confirmation, the table has the best trials of the search.
    """
    if report.searched:
        return searched(report)
    shown = [metric for metric in report.metrics if metric in report.outcomes]
    shown = shown or [each for each in report.metrics if report.splits.quantity(each) in report.headlines]
    beside = [metric for metric in report.metrics if "beside" in report.quantity(metric).shown]
    splits = {report.splits.split(metric) for metric in shown}
    beside = [each for each in beside if each not in shown and report.splits.split(each) in splits][:1]
    first = (report.outcomes or ("",))[0]
    rows = [
        (
            arm,
            report.finished(arm),
            *(_mean(report, arm, metric, with_n=False) for metric in (*shown, *beside)),
            *_first_effect(report, arm, first),
        )
        for arm in report.arms
    ]
    none = tuple("" for _ in (*beside, "difference", "verdict"))
    floors = [(name, "", *cells, *none) for name, *cells in _floor_rows(report, shown)]
    headers = (
        "arm",
        f"{report.unit}s",
        *shown,
        *beside,
        f"difference in {first}" if first else "difference",
        "verdict",
    )
    title = worded(
        (cell.estimate for cell in report.cells if cell.metric in {*shown, *beside}),
        intervals=f"means with 95% intervals over {report.unit}s",
        means=f"means over {report.unit}s",
        one=f"one {report.unit} of each arm",
    )
    return Grid(f"{report.sweep}: {title}{_per_unit(report)}{_family(report)}", headers, (*rows, *floors))


def _per_unit(report: Report) -> str:
    """Return how many seeds each repeat has; empty if every arm was searched once."""
    if report.repeats == 1 or not report.unit_seeds:
        return ""
    return f" of the search, {amount(len(report.unit_seeds[0][1]), 'seed')} each"


def changes(report: Report) -> list[Grid]:
    """Return the table of all changes of each arm, and that of the chosen settings."""
    headers = ("arm", "against", "changes", "chosen by its search", "not searched")
    rows = arm_changes.rows(report.changes)
    used = [place for place in range(5) if place < 3 or any(row[place] != "-" for row in rows)]
    kept = tuple(tuple(row[place] for place in used) for row in rows)
    found = [Grid(arm_changes.TITLE, tuple(headers[place] for place in used), kept)] if rows else []
    return [*found, *repeat_tables.chosen(report)]


def _family(report: Report) -> str:
    if report.answer is None or not report.answer.family:
        return ""
    several = report.answer.family > 1
    family = f"{amount(report.answer.family, 'comparison')} together" if several else "one comparison"
    return worded(
        report.differences,
        intervals=f"; differences paired by {report.unit}, {family} at level {report.answer.level:g}",
        means=f"; differences paired by {report.unit}",
        one="",
    )


def answers(report: Report) -> list[Grid]:
    """Return tables of verdicts and seeds for every primary outcome, by context, then over all contexts."""
    return [*_in_each_context(report, _answers), *_pooled(report)]


def _answers(report: Report) -> list[Grid]:
    found = []
    for metric in report.outcomes:
        found += _verdicts(report, report.verdicts, metric)
        found += repeat_tables.outlooks(report, metric)
        found += _controls(report, metric)
        found += crossed_tables.tables(report, metric)
        found += repeat_tables.seed_by_seed(report, metric)
        found += repeat_tables.spreads(report, metric)
    return found


def _controls(report: Report, metric: str) -> list[Grid]:
    """Return the table of controls, which differ only by chance."""
    title = f"{metric}, controls: differences that luck alone makes, each by itself"
    return [replace(grid, title=title) for grid in _verdicts(report, report.controls, metric)]


def _pooled(report: Report) -> list[Grid]:
    """Return tables of verdicts on the mean over all contexts."""
    return [
        replace(grid, title=titled("mean over all contexts", grid.title))
        for metric in report.outcomes
        for grid in _verdicts(report, report.pooled, metric)
    ]


def _verdicts(report: Report, verdicts: Iterable[ArmVerdict], metric: str) -> list[Grid]:
    """Return the table of `verdicts` on one primary outcome, if there are any."""
    own = [each for each in verdicts if each.metric == metric]
    rows = [
        (
            f"{each.arm} - {each.reference}",
            each.seeds.replace(" finished", ""),
            "-" if each.difference is None else interval_words(each.difference, "+", report.margin(metric)),
            win_words(each.wins),
            "-" if each.p is None else p_words(each.p, each.level),
            each.text,
        )
        for each in own
    ]
    if not rows:
        return []
    shown = worded(
        (each.difference for each in own if each.difference),
        intervals="mean difference and interval",
        means="mean difference",
        one=f"difference in one {report.unit}",
    )
    title = f"{metric}, primary outcome: {shown}{_family(report)}"
    headers = ("arm", "finished", "difference", win_title(each.wins for each in own), "p", "verdict")
    return [Grid(title, headers, tuple(rows), stacked=True)]


def _points(report: Report) -> list[Grid]:
    """Return the table of the confirmed points of fronts."""
    metrics = [
        metric
        for metric in report.metrics
        if metric in report.outcomes or "posthoc" in report.quantity(metric).shown
    ]
    cells = {(cell.arm, cell.setting, cell.metric): cell for cell in report.points}
    rows = [
        (
            *named,
            *(
                interval_words(cell.estimate) if (cell := cells.get((*named, metric))) else "-"
                for metric in metrics
            ),
        )
        for named in dict.fromkeys((cell.arm, cell.setting) for cell in report.points)
    ]
    found = (cell.estimate for cell in report.points)
    shown = worded(found, intervals="mean [95% interval]", means="mean", one="one seed")
    title = f"confirmed points of each front: {shown}; other tables are of point 1 of each arm"
    return [Grid(title, ("arm", "point", *metrics), tuple(rows))] if rows else []


def searched(report: Report) -> Grid:
    """Return the table of the best trial of each arm's search."""
    bests = {each.arm: each for each in report.searched}
    metrics = tuple(dict.fromkeys(name for each in report.searched for name in each.values))
    rows = []
    for arm in report.arms:
        best = bests.get(arm)
        if best is None:
            rows.append((arm, "0", *("-" for _ in metrics), "-"))
        else:
            values = (number_words(best.values[metric]) for metric in metrics)
            rows.append((arm, str(best.finished), *values, _assigned(best.assignment)))
    title = f"{report.sweep}: best of each search, on the split that chose it: no test, no claim"
    return Grid(title, ("arm", "finished", *metrics, "best assignment"), tuple(rows))


def _results(report: Report, quantity: str) -> Grid:
    metrics = _of(report, quantity)
    rows = [(arm, *(_mean(report, arm, metric) for metric in metrics)) for arm in report.arms]
    rows += _floor_rows(report, metrics)
    cells = {(cell.arm, cell.metric): cell for cell in report.cells}
    for arm in report.arms:
        beside = _published_rows([cells.get((arm, metric)) for metric in metrics])
        rows += [(f"{arm}, {words}", *values) for words, values in beside]
    rows += _prior_rows(report, metrics)
    shown = _means(cell for cell in report.cells if cell.metric in metrics)
    headers = ("arm", *(marked(report, metric) for metric in metrics))
    return Grid(f"{explained(report, quantity)}: {shown}", headers, tuple(rows))


def _means(cells: Iterable[Cell]) -> str:
    """Return the title of values formatted by `_value`."""
    found = (cell.estimate for cell in cells)
    return worded(found, intervals="mean [95% interval] (n)", means="mean (n)", one="one seed (n)")


def _published_rows(cells: list[Cell | None]) -> list[tuple[str, list[str]]]:
    """Return published values of these results with their row names; medians follow the measured medians."""

    def row(value: Callable[[Cell], str]) -> list[str]:
        return ["" if cell is None else value(cell) for cell in cells]

    found = [
        ("published", row(lambda cell: _with_std(cell.published, cell.published_std))),
        ("our median", row(lambda cell: number_words(cell.median))),
        ("published median", row(lambda cell: _with_std(cell.published_median, cell.published_median_std))),
    ]
    return [(words, values) for words, values in found if any(values)]


def _prior_rows(report: Report, metrics: list[str]) -> list[tuple[str, ...]]:
    """Return rows of published values of systems that are not arms."""
    rows: dict[str, dict[str, str]] = {}
    for each in report.prior_work:
        words = "published" if each.statistic == "mean" else f"published {each.statistic}"
        rows.setdefault(f"{each.system}, {words}", {})[each.metric] = _with_std(each.value, each.std)
    found = [(name, *(values.get(metric, "") for metric in metrics)) for name, values in rows.items()]
    return [row for row in found if any(row[1:])]


def _floor_rows(report: Report, metrics: list[str]) -> list[tuple[str, ...]]:
    """Return rows of floors of the metrics, one for each name of a floor."""
    named = {
        metric: f"{FLOOR_ROW} ({report.quantity(metric).floor_name})"
        for metric in metrics
        if metric in report.floors
    }
    return [
        (name, *(number_words(report.floors[each]) if named.get(each) == name else "" for each in metrics))
        for name in dict.fromkeys(named.values())
    ]


def explained(report: Report, quantity: str) -> str:
    """Return a quantity with its meaning or unit, if known: `depth (layers run)`."""
    known = next((each for each in report.quantities if each.name == quantity), None)
    words = one_line(known.meaning or known.unit) if known else ""
    return f"{quantity} ({words})" if words else quantity


def marked(report: Report, metric: str) -> str:
    """Return the split of `metric` with its role."""
    return (report.splits.split(metric) or NO_SPLIT) + role(report, metric)


def role(report: Report, metric: str) -> str:
    """Return a note on the split of `metric`, to follow its name."""
    if metric in report.outcomes:
        return " (primary)"
    return " (selection)" if report.splits.is_selection(metric) else ""


def _differences(report: Report) -> list[Grid]:
    found = []
    for quantity in _quantities(report):
        metrics = [metric for metric in _of(report, quantity) if metric not in report.outcomes]
        rows = [
            (
                f"{arm} - {reference}",
                *(_counted_difference(report.effect(arm, metric)) for metric in metrics),
            )
            for arm in report.arms
            if (reference := _reference(report, arm, metrics))
        ]
        if rows:
            shown = worded(
                (each.estimate for each in report.effects if each.metric in metrics),
                intervals="paired mean [95% interval of each alone] (pairs)",
                means="paired mean (pairs)",
                one="in one seed (pairs)",
            )
            title = f"{quantity}, exploratory differences: {shown}"
            headers = ("arm", *(marked(report, metric) for metric in metrics))
            found.append(Grid(title, headers, tuple(rows)))
    return found


def _reference(report: Report, arm: str, metrics: list[str]) -> str:
    """Return the reference of the arm in these metrics; empty if it has none."""
    effects = (report.effect(arm, metric) for metric in metrics)
    return next((effect.reference for effect in effects if effect), "")


def tallies(report: Report) -> Grid:
    """Return the table of how each arm's trials ended."""
    rows = []
    searched = {each.arm: each.assignment for each in report.searched}
    for tally in report.tallies:
        ended = "; ".join(
            f"{phase}: " + ", ".join(f"{count} {name}" for name, count in counts.items())
            for phase, counts in tally.outcomes.items()
        )
        seconds = f"{tally.seconds:.0f} s"
        best = tally.assignment or searched.get(tally.arm, {})
        rows.append((tally.arm, ended or "nothing ran", seconds, _assigned(best)))
    return Grid("how trials ended", ("arm", "outcomes", "work", "best assignment"), tuple(rows))


def _assigned(assignment: Mapping[str, object]) -> str:
    return setting_words(assignment, 4) or "-"


def _posthoc(report: Report) -> list[Grid]:
    """Return the table of confirmed checkpoints re-evaluated under other settings."""
    failed = {(each.arm, each.setting): f"0 of {each.seeds} finished" for each in report.failed_readings}
    settings = [*dict.fromkeys((cell.arm, cell.setting) for cell in report.posthoc), *failed]
    settings.sort(key=lambda each: report.arms.index(each[0]))
    if not settings:
        return []
    read = {cell.metric for cell in report.posthoc}
    # Metrics that only re-evaluations measure come last.
    metrics = [
        metric
        for metric in dict.fromkeys((*report.metrics, *(cell.metric for cell in report.posthoc)))
        if metric in report.outcomes or (metric in read and "posthoc" in report.quantity(metric).shown)
    ]
    cells = {(cell.arm, cell.setting, cell.metric): cell for cell in report.posthoc}
    rows: list[tuple[str, ...]] = []
    for arm, setting in settings:
        own = [cells.get((arm, setting, metric)) for metric in metrics]
        none = failed.get((arm, setting), "-")
        rows.append((arm, setting, *(none if cell is None else _value(cell) for cell in own)))
        rows += [(f"{arm}, {words}", setting, *values) for words, values in _published_rows(own)]
    title = f"confirmed checkpoints read again: {_means(report.posthoc)}"
    return [Grid(title, ("arm", "setting", *metrics), tuple(rows), stacked=True)]


def _quantities(report: Report) -> list[str]:
    return list(dict.fromkeys(map(report.splits.quantity, report.metrics)))


def _of(report: Report, quantity: str) -> list[str]:
    return [metric for metric in report.metrics if report.splits.quantity(metric) == quantity]


def _with_std(value: float | None, std: float | None) -> str:
    return number_words(value) if std is None else f"{number_words(value)} ± {number_words(std)}"


def _mean(report: Report, arm: str, metric: str, *, with_n: bool = True) -> str:
    cell = report.cell(arm, metric)
    if cell is None:
        finished = report.finished(arm)
        return finished if "of" in finished else "-"
    if not with_n:
        return interval_words(cell.estimate)
    return _value(cell)


def _value(cell: Cell) -> str:
    """Return mean and interval, with the number of seeds and, if some failed, of all seeds."""
    n = cell.estimate.n
    counted = f"{n} of {n + cell.failed} {ended_word(cell.failures)}" if cell.failed else str(n)
    return f"{interval_words(cell.estimate)} ({counted})"


def _difference(report: Report, found: Estimate | None, metric: str) -> str:
    return "-" if found is None else interval_words(found, "+", report.margin(metric))


def _counted_difference(effect: Effect | None) -> str:
    return "-" if effect is None else f"{interval_words(effect.estimate, '+')} ({effect.estimate.n})"


def _first_effect(report: Report, arm: str, metric: str) -> tuple[str, str]:
    """Return the difference and the verdict in the primary outcome."""
    if arm == report.arms[0]:
        return "baseline", ""
    effect, said = report.effect(arm, metric), report.verdict(arm)
    difference = _difference(report, effect.estimate if effect is not None else None, metric)
    if said is None:
        return difference, ""
    return difference, f"{said.text} ({said.seeds})" if said.looked else said.text


def as_rich(grid: Grid) -> "Table":
    """Return the table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=grid.title, title_justify="left")
    for index, header in enumerate(grid.headers):
        table.add_column(header, no_wrap=index == 0)
    for row in grid.rows:
        table.add_row(*map(Text, row), style="dim" if row[0].startswith(f"{FLOOR_ROW} (") else None)
    return table


def as_markdown(grid: Grid) -> str:
    """Return the table in GitHub's Markdown, its title above it in bold."""
    lines = [grid.headers, ["---"] * len(grid.headers), *grid.rows]
    escaped = ["| " + " | ".join(markdown_line(one_line(each)) for each in line) + " |" for line in lines]
    return "\n".join([f"**{markdown_line(grid.title)}**", "", *escaped])
