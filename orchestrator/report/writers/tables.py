"""Create the tables of a report, and render them for the terminal and as Markdown."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING

from orchestrator.plan.display.format import count, setting_words
from orchestrator.report.comparisons import crossed_tables, equal_cost_tables, factorial_tables, repeat_tables
from orchestrator.report.results import arm_changes
from orchestrator.report.results.contexts import prefix_context, split_by_context
from orchestrator.report.results.number_formats import (
    choose_text,
    format_interval,
    format_number,
    win_share_title,
)
from orchestrator.report.results.types import (
    ArmResult,
    ArmVerdict,
    Effect,
    Report,
    TextTable,
    completion_word,
)
from search_spaces.wording import amount, markdown_line, one_line

if TYPE_CHECKING:
    from rich.table import Table

FLOOR_ROW_NAME = "floor"
"""Beginning of the names of floor rows."""


NO_SPLIT_HEADING = "no split"
"""Heading of metrics without a split in the name or the spec, such as `eval_loss`."""


def all_tables(report: Report) -> list[TextTable]:
    """Return all tables of a report: arms and their changes, verdicts, results, how trials ended."""
    changes, answers, metrics = change_tables(report), answer_tables(report), metric_tables(report)
    return [*changes, *answers, *metrics, *cost_tables(report), *search_tables(report), outcome_table(report)]


def _tables_by_context(report: Report, make_tables: Callable[[Report], list[TextTable]]) -> list[TextTable]:
    """Return the tables that `make_tables` returns for each context."""
    return [
        replace(grid, title=prefix_context(context, grid.title))
        for context, part in split_by_context(report)
        for grid in make_tables(part)
    ]


def metric_tables(report: Report) -> list[TextTable]:
    """Return tables of main effects, quantities and differences of arms as trained, by context."""
    return _tables_by_context(report, _metric_tables_of_context)


def _metric_tables_of_context(report: Report) -> list[TextTable]:
    factors = factorial_tables.factorial_tables(report)
    results = [_results_table(report, quantity) for quantity in _quantities(report)]
    return [*factors, *results, *_front_tables(report), *_difference_tables(report)]


def cost_tables(report: Report) -> list[TextTable]:
    """Return tables of re-evaluations, and of arms at equal cost, by context, then of published sizes."""
    return [*_tables_by_context(report, _cost_tables_of_context), *_published_sizes(report)]


def _published_sizes(report: Report) -> list[TextTable]:
    rows = tuple(
        (size.system, *map(_format_whole, (size.parameters, size.macs)), size.source)
        for size in report.published_sizes
    )
    headers = ("system", "parameters", "multiply-adds", "source")
    return [TextTable("published sizes; publications count different parts", headers, rows)] if rows else []


def _format_whole(value: float | None) -> str:
    return "" if value is None else count(round(value))


def _cost_tables_of_context(report: Report) -> list[TextTable]:
    return [*_posthoc_tables(report), *equal_cost_tables.equal_cost_tables(report)]


def search_tables(report: Report) -> list[TextTable]:
    """Return tables of the best search trial of each arm, by context, for a sweep without confirmation."""
    return _tables_by_context(report, lambda part: [search_table(part)] if part.searched else [])


def screen_tables(report: Report) -> list[TextTable]:
    """Return the tables for the screen: results and differences by context, then over all contexts."""
    by_context = _tables_by_context(report, lambda part: [screen_table(part), *_screen_differences(part)])
    return [*by_context, *_pooled_tables(report)]


def screen_table(report: Report) -> TextTable:
    """Return the table for the screen: headline quantities and costs of every arm, then floors.

    The table has the differences of a single primary outcome; `_screen_differences` has those of several.
    For a search without confirmation, the table has the best trials of the search.
    """
    if report.searched:
        return search_table(report)
    shown_metrics = _screen_metrics(report)
    splits = {report.splits.split(metric) for metric in shown_metrics}
    other_metrics = [metric for metric in report.metrics if metric not in shown_metrics]
    extra_metrics = [metric for metric in other_metrics if "beside" in report.quantity(metric).shown]
    extra_metrics = [metric for metric in extra_metrics if report.splits.split(metric) in splits][:1]
    has_differences = len(_outcomes_with_verdict(report)) <= 1
    first_outcome = (report.outcomes or ("",))[0]
    rows = [
        (
            arm,
            report.finished_text(arm),
            *(_mean_cell(report, arm, metric, with_n=False) for metric in (*shown_metrics, *extra_metrics)),
            *(_effect_cells(report, arm, first_outcome) if has_differences else ()),
        )
        for arm in report.arms
    ]
    difference_headers = (
        f"difference in {first_outcome}" if first_outcome else "difference",
        "verdict",
    ) * has_differences
    headers = ("arm", f"{report.unit}s", *shown_metrics, *extra_metrics, *difference_headers)
    empty_cells = ("",) * len((*extra_metrics, *difference_headers))
    floors = [(name, "", *cells, *empty_cells) for name, *cells in _floor_rows(report, shown_metrics)]
    title = _estimates_title(report, shown_metrics)
    family_text = _family_text(report) if has_differences else ""
    return TextTable(f"{report.sweep}: {title}{family_text}", headers, (*rows, *floors))


def _estimates_title(report: Report, metrics: Collection[str]) -> str:
    """Return what the values of a table are: means with or without intervals, or values of one seed."""
    estimates = (cell.estimate for cell in report.cells if cell.metric in metrics)
    intervals, means, single_seed_text = "means with 95% intervals", "means", f"one {report.unit} of each arm"
    title = choose_text(estimates, intervals=intervals, mean_text=means, single_seed=single_seed_text)
    return title if title == single_seed_text else f"{title} over {report.unit}s{_seeds_per_repeat(report)}"


def _screen_metrics(report: Report) -> list[str]:
    """Return the primary outcomes, also if no trial has measured one, or else the headlines."""
    measured = [metric for metric in report.metrics if metric in report.outcomes]
    is_headline = [report.splits.quantity(metric) in report.headlines for metric in report.metrics]
    return measured or [*report.outcomes] or [*compress(report.metrics, is_headline)]


def _outcomes_with_verdict(report: Report) -> list[str]:
    verdicts = (*report.verdicts, *report.controls)
    return [metric for metric in report.outcomes if any(verdict.metric == metric for verdict in verdicts)]


def _screen_differences(report: Report) -> list[TextTable]:
    """Return one table of differences and verdicts for each primary outcome, if there are several.

    A long text of a verdict is in the first row that it applies to. Later rows have only the kind of verdict.
    """
    outcomes = _outcomes_with_verdict(report)
    if report.searched or len(outcomes) <= 1:
        return []
    grids: list[TextTable] = []
    shown_texts = set[str]()
    for metric in outcomes:
        rows = []
        for arm in report.arms:
            if (verdict := report.verdict(arm, metric)) is not None:
                difference, text = _effect_cells(report, arm, metric)
                rows.append((arm, difference, _verdict_kind(verdict) if text in shown_texts else text))
                shown_texts.add(text)
        title = f"difference in {metric}{'' if grids else _family_text(report)}"
        grids.append(TextTable(title, ("arm", "difference", "verdict"), tuple(rows)))
    return grids


def _verdict_kind(verdict: ArmVerdict) -> str:
    """Return the verdict in a few words, without its reason."""
    is_open = verdict.kind is None or verdict.kind == "undecided"
    return verdict.text.partition(":")[0] if is_open else str(verdict.kind)


def _seeds_per_repeat(report: Report) -> str:
    """Return the number of seeds per repeat; empty if every arm was searched once."""
    if report.repeats == 1 or not report.unit_seeds:
        return ""
    return f" of the search, {amount(len(report.unit_seeds[0][1]), 'seed')} each"


def change_tables(report: Report) -> list[TextTable]:
    """Return the table of all changes of each arm, and the table of the chosen settings."""
    headers = ("arm", "against", "changes", "chosen by its search", "not searched")
    rows = arm_changes.change_rows(report.changes)
    is_used = [place < 3 or any(row[place] != "-" for row in rows) for place in range(len(headers))]
    used_headers, used_rows = (
        tuple(compress(headers, is_used)),
        tuple(tuple(compress(row, is_used)) for row in rows),
    )
    grids = [TextTable(arm_changes.CHANGES_TITLE, used_headers, used_rows)] if rows else []
    return [*grids, *repeat_tables.chosen_settings_table(report)]


def _family_text(report: Report) -> str:
    if report.answer is None or not report.answer.family:
        return ""
    has_several = report.answer.family > 1
    family = f"{amount(report.answer.family, 'comparison')} together" if has_several else "one comparison"
    return f"; differences paired by {report.unit}, {family} at level {report.answer.level:g}"


def answer_tables(report: Report) -> list[TextTable]:
    """Return tables of verdicts and seeds for every primary outcome, by context, then over all contexts."""
    return [*_tables_by_context(report, _answer_tables_of_context), *_pooled_tables(report)]


def _answer_tables_of_context(report: Report) -> list[TextTable]:
    grids = []
    for metric in report.outcomes:
        grids += _verdict_tables(report, report.verdicts, metric)
        grids += repeat_tables.decision_chance_tables(report, metric)
        grids += _control_tables(report, metric)
        grids += crossed_tables.crossed_tables(report, metric)
        grids += repeat_tables.seed_tables(report, metric)
        grids += repeat_tables.deviation_tables(report, metric)
    return grids


def _control_tables(report: Report, metric: str) -> list[TextTable]:
    """Return the table of controls, which differ only by chance."""
    title = f"{metric}, controls: differences caused only by chance, tested without correction"
    return [replace(grid, title=title) for grid in _verdict_tables(report, report.controls, metric)]


def _pooled_tables(report: Report) -> list[TextTable]:
    """Return tables of verdicts on the mean over all contexts."""
    return [
        replace(grid, title=prefix_context("mean over all contexts", grid.title))
        for metric in report.outcomes
        for grid in _verdict_tables(report, report.pooled, metric)
    ]


def _verdict_tables(report: Report, verdicts: Iterable[ArmVerdict], metric: str) -> list[TextTable]:
    """Return the table of `verdicts` on one primary outcome, if there are any."""
    metric_verdicts = [verdict for verdict in verdicts if verdict.metric == metric]
    if not metric_verdicts:
        return []
    rows = [
        (f"{verdict.arm} - {verdict.reference}", *crossed_tables.result_cells(verdict, report.margin(metric)))
        for verdict in metric_verdicts
    ]
    title = f"{metric}, primary outcome: mean difference and interval{_family_text(report)}"
    win_share_header = win_share_title(verdict.wins for verdict in metric_verdicts)
    headers = ("arm", "finished", "difference", win_share_header, "p", "verdict")
    return [TextTable(title, headers, tuple(rows), stacked=True)]


def _front_tables(report: Report) -> list[TextTable]:
    """Return the table of the confirmed points of Pareto fronts."""
    metrics = [
        metric
        for metric in report.metrics
        if metric in report.outcomes or "posthoc" in report.quantity(metric).shown
    ]
    cells = {(cell.arm, cell.setting, cell.metric): format_interval(cell.estimate) for cell in report.points}
    points = dict.fromkeys((cell.arm, cell.setting) for cell in report.points)
    rows = tuple((*point, *(cells.get((*point, metric), "-") for metric in metrics)) for point in points)
    title = "confirmed points of each front: mean [95% interval]; other tables are of point 1 of each arm"
    return [TextTable(title, ("arm", "point", *metrics), rows)] if rows else []


def search_table(report: Report) -> TextTable:
    """Return the table of the best trial of each arm's search."""
    bests = {best.arm: best for best in report.searched}
    metrics = tuple(dict.fromkeys(name for best in report.searched for name in best.values))
    rows = []
    for arm in report.arms:
        if (best := bests.get(arm)) is None:
            rows.append((arm, "0", *("-" for _ in metrics), "-"))
        else:
            values = (format_number(best.values[metric]) for metric in metrics)
            rows.append((arm, str(best.finished), *values, _format_assignment(best.assignment)))
    title = f"{report.sweep}: best of each search, on the split that the search used: exploratory"
    return TextTable(title, ("arm", "finished", *metrics, "best assignment"), tuple(rows))


def _results_table(report: Report, quantity: str) -> TextTable:
    metrics = _metrics_of_quantity(report, quantity)
    rows = [(arm, *(_mean_cell(report, arm, metric) for metric in metrics)) for arm in report.arms]
    rows += _floor_rows(report, metrics)
    for arm in report.arms:
        published_rows = _published_rows([report.cell(arm, metric) for metric in metrics])
        rows += [(f"{arm}, {words}", *values) for words, values in published_rows]
    rows += _prior_rows(report, metrics)
    headers = ("arm", *(split_title(report, metric) for metric in metrics))
    values = _values_title(cell for cell in report.cells if cell.metric in metrics)
    return TextTable(f"{quantity_title(report, quantity)}: {values}", headers, tuple(rows))


def _values_title(cells: Iterable[ArmResult]) -> str:
    """Return the title of values formatted by `_format_cell`."""
    intervals, means, single_seed_text = "mean [95% interval] (n)", "mean (n)", "value of one seed (n)"
    return choose_text(
        (cell.estimate for cell in cells), intervals=intervals, mean_text=means, single_seed=single_seed_text
    )


def _published_rows(cells: list[ArmResult | None]) -> list[tuple[str, list[str]]]:
    """Return published values of these results with their row names; medians follow the measured medians."""
    texts: dict[str, Callable[[ArmResult], str]] = {
        "published": lambda cell: _format_with_std(cell.published, cell.published_std),
        "our median": lambda cell: format_number(cell.median),
        "published median": lambda cell: _format_with_std(cell.published_median, cell.published_median_std),
    }
    rows = [(name, [text(cell) if cell else "" for cell in cells]) for name, text in texts.items()]
    return [(name, values) for name, values in rows if any(values)]


def _prior_rows(report: Report, metrics: list[str]) -> list[tuple[str, ...]]:
    """Return rows of published values of systems that are not arms."""
    values_by_name: dict[str, dict[str, str]] = {}
    for prior in report.prior_work:
        words = "published" if prior.statistic == "mean" else f"published {prior.statistic}"
        values = values_by_name.setdefault(f"{prior.system}, {words}", {})
        values[prior.metric] = _format_with_std(prior.value, prior.std)
    rows = [
        (name, *(values.get(metric, "") for metric in metrics)) for name, values in values_by_name.items()
    ]
    return [row for row in rows if any(row[1:])]


def _floor_rows(report: Report, metrics: list[str]) -> list[tuple[str, ...]]:
    """Return rows of floors of the metrics, one for each name of a floor."""
    values_by_name: dict[str, dict[str, str]] = {}
    for metric in metrics:
        if metric in report.floors:
            values = values_by_name.setdefault(f"{FLOOR_ROW_NAME} ({report.quantity(metric).floor_name})", {})
            values[metric] = format_number(report.floors[metric])
    return [
        (name, *(values.get(metric, "") for metric in metrics)) for name, values in values_by_name.items()
    ]


def quantity_title(report: Report, quantity: str) -> str:
    """Return a quantity with its meaning or unit, if known: `depth (layers run)`."""
    metric_info = next((metric for metric in report.quantities if metric.name == quantity), None)
    words = one_line(metric_info.meaning or metric_info.unit) if metric_info else ""
    return f"{quantity} ({words})" if words else quantity


def split_title(report: Report, metric: str) -> str:
    """Return the split of `metric` with its role."""
    return (report.splits.split(metric) or NO_SPLIT_HEADING) + role_note(report, metric)


def role_note(report: Report, metric: str) -> str:
    """Return a note on the split of `metric`, to follow its name."""
    if metric in report.outcomes:
        return " (primary)"
    return " (selection)" if report.splits.is_selection(metric) else ""


def _difference_tables(report: Report) -> list[TextTable]:
    grids = []
    for quantity in _quantities(report):
        metrics = [name for name in _metrics_of_quantity(report, quantity) if name not in report.outcomes]
        rows = []
        for arm in report.arms:
            effects = [report.effect(arm, metric) for metric in metrics]
            if reference := next((effect.reference for effect in effects if effect), ""):
                rows.append((f"{arm} - {reference}", *map(_format_effect, effects)))
        if rows:
            title = f"{quantity}, exploratory differences: paired mean [95% interval of each alone] (pairs)"
            headers = ("arm", *(split_title(report, metric) for metric in metrics))
            grids.append(TextTable(title, headers, tuple(rows)))
    return grids


def outcome_table(report: Report) -> TextTable:
    """Return the table of how each arm's trials ended."""
    rows: list[tuple[str, ...]] = []
    searched = {best.arm: best.assignment for best in report.searched}
    for tally in report.tallies:
        outcomes = "; ".join(
            f"{phase}: " + ", ".join(f"{count} {name}" for name, count in counts.items())
            for phase, counts in tally.outcomes.items()
        )
        best = _format_assignment(tally.assignment or searched.get(tally.arm, {}))
        rows.append((tally.arm, outcomes or "nothing ran", f"{tally.seconds:.0f} s", best))
    columns: tuple[str, ...] = ("arm", "outcomes", "work", "best assignment")
    if all(row[-1] == "-" for row in rows):  # no search, or repeats with a best assignment each
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return TextTable("how trials ended", columns, tuple(rows))


def _format_assignment(assignment: Mapping[str, object]) -> str:
    return setting_words(assignment, 4) or "-"


def _posthoc_tables(report: Report) -> list[TextTable]:
    """Return the table of confirmed checkpoints re-evaluated under other settings."""
    failed_texts = {
        (reading.arm, reading.setting): f"0 of {reading.seeds} finished" for reading in report.failed_readings
    }
    settings = [*dict.fromkeys((cell.arm, cell.setting) for cell in report.posthoc), *failed_texts]
    if not settings:
        return []
    settings.sort(key=lambda key: report.arms.index(key[0]))
    measured = dict.fromkeys(cell.metric for cell in report.posthoc)
    shown = {metric for metric in measured if "posthoc" in report.quantity(metric).shown}
    # Metrics that only re-evaluations measure come last.
    all_metrics = dict.fromkeys((*report.metrics, *measured))
    metrics = [metric for metric in all_metrics if metric in report.outcomes or metric in shown]
    cells = {(cell.arm, cell.setting, cell.metric): cell for cell in report.posthoc}
    rows: list[tuple[str, ...]] = []
    for arm, setting in settings:
        setting_cells = [cells.get((arm, setting, metric)) for metric in metrics]
        placeholder = failed_texts.get((arm, setting), "-")
        rows.append((arm, setting, *(_format_cell(cell) if cell else placeholder for cell in setting_cells)))
        rows += [(f"{arm}, {words}", setting, *values) for words, values in _published_rows(setting_cells)]
    title = f"re-evaluated checkpoints: {_values_title(report.posthoc)}"
    return [TextTable(title, ("arm", "setting", *metrics), tuple(rows), stacked=True)]


def _quantities(report: Report) -> list[str]:
    return list(dict.fromkeys(map(report.splits.quantity, report.metrics)))


def _metrics_of_quantity(report: Report, quantity: str) -> list[str]:
    return [metric for metric in report.metrics if report.splits.quantity(metric) == quantity]


def _format_with_std(value: float | None, std: float | None) -> str:
    return format_number(value) if std is None else f"{format_number(value)} ± {format_number(std)}"


def _mean_cell(report: Report, arm: str, metric: str, *, with_n: bool = True) -> str:
    cell = report.cell(arm, metric)
    if cell is None:
        finished = report.finished_text(arm)
        return finished if "of" in finished else "-"
    return _format_cell(cell) if with_n else format_interval(cell.estimate)


def _format_cell(cell: ArmResult) -> str:
    """Return mean and interval with the number of seeds, and with the number of all seeds if some failed."""
    n = cell.estimate.n
    count_text = f"{n} of {n + cell.failed} {completion_word(cell.failures)}" if cell.failed else str(n)
    return f"{format_interval(cell.estimate)} ({count_text})"


def _format_effect(effect: Effect | None) -> str:
    return "-" if effect is None else f"{format_interval(effect.estimate, '+')} ({effect.estimate.n})"


def _effect_cells(report: Report, arm: str, metric: str) -> tuple[str, str]:
    """Return the text cells with the difference and the verdict of an arm in a primary outcome."""
    if arm == report.arms[0]:
        return "baseline", ""
    effect, verdict = report.effect(arm, metric), report.verdict(arm, metric)
    difference = "-" if effect is None else format_interval(effect.estimate, "+", report.margin(metric))
    if verdict is None:
        return difference, ""
    return difference, f"{verdict.text} ({verdict.seeds})" if verdict.looked else verdict.text


def as_rich(grid: TextTable) -> "Table":
    """Return the table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=grid.title, title_justify="left")
    for index, header in enumerate(grid.headers):
        table.add_column(header, no_wrap=index == 0)
    for row in grid.rows:
        table.add_row(*map(Text, row), style="dim" if row[0].startswith(f"{FLOOR_ROW_NAME} (") else None)
    return table


def as_markdown(grid: TextTable) -> str:
    """Return the table in GitHub's Markdown, its title above it in bold."""
    lines = [grid.headers, ["---"] * len(grid.headers), *grid.rows]
    escaped = ["| " + " | ".join(markdown_line(one_line(cell)) for cell in line) + " |" for line in lines]
    return "\n".join([f"**{markdown_line(grid.title)}**", "", *escaped])
