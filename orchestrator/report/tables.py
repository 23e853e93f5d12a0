"""The report as tables: one structure, drawn for the terminal, as Markdown, as CSV and as JSON."""

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.report.statistics import Estimate
from orchestrator.report.summary import SELECTION_SPLIT
from orchestrator.report.types import Cell, Effect, Report
from search_spaces.wording import markdown_line, one_line, visible

if TYPE_CHECKING:
    from rich.table import Table

FLOOR_ROW = "floor"
"""How rows of floors begin."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
CSV_ESTIMATE = ("n", "mean", "ci_low", "ci_high")
CSV_COLUMNS = (
    *("arm", "setting", "metric", *CSV_ESTIMATE, "failed", "floor", "published", "published_source"),
    *("published_std", "median", "published_median"),
    *(f"difference_{name}" for name in CSV_ESTIMATE),
    *("p", "p_holm", "record_ids"),
)
WHOLE_FROM = 100
"""Quantities of at least this are shown without decimals."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A titled table of finished text."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def grids(report: Report) -> list[Grid]:
    """All tables of a report, most wanted first: results, differences to the baseline, how trials ended."""
    results = [_results(report, quantity) for quantity in _quantities(report)]
    found = [_searched(report)] if report.searched else []
    return [*results, *_differences(report), *_posthoc(report), *found, _tallies(report)]


def headline(report: Report) -> Grid:
    """The one table for the screen: the headline quantities of every arm and their costs, floors beneath.

    Of a search that confirms nothing, what it found.
    """
    if report.searched:
        return _searched(report)
    leading = [metric for metric in report.metrics if _quantity(metric) in report.headlines]
    tested = [metric for metric in leading if _split(metric) != SELECTION_SPLIT]
    shown = tested or leading
    beside = [metric for metric in report.metrics if "beside" in report.quantity(metric).shown][:1]
    beside = [metric for metric in beside if metric not in shown]
    rows = [
        (
            arm,
            _seeds(report, arm, shown[:1]),
            *(_mean(report, arm, metric, with_n=False) for metric in (*shown, *beside)),
            _first_effect(report, arm, shown),
        )
        for arm in report.arms
    ]
    floors = [(name, "", *cells, *("" for _ in beside), "") for name, *cells in _floor_rows(report, shown)]
    headers = ("arm", "n", *shown, *beside, f"difference in {shown[0]}" if shown else "difference")
    title = f"{report.sweep}: means with 95% intervals over n seeds, differences paired by seed"
    return Grid(title, headers, (*rows, *floors))


def _searched(report: Report) -> Grid:
    """The best of every arm's search."""
    bests = {each.arm: each for each in report.searched}
    metrics = tuple(dict.fromkeys(name for each in report.searched for name in each.values))
    rows = []
    for arm in report.arms:
        best = bests.get(arm)
        if best is None:
            rows.append((arm, "0", *("-" for _ in metrics), "-"))
        else:
            values = (_number(best.values[metric]) for metric in metrics)
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
    return Grid(
        f"{explained(report, quantity)}: mean [95% interval] (n)", ("arm", *map(_split, metrics)), tuple(rows)
    )


def _published_rows(cells: list[Cell | None]) -> list[tuple[str, list[str]]]:
    """What was published of these readings, each with the words that name it; medians beside our own."""

    def row(value: Callable[[Cell], str]) -> list[str]:
        return ["" if cell is None else value(cell) for cell in cells]

    found = [
        ("published", row(lambda cell: _with_std(cell.published, cell.published_std))),
        ("our median", row(lambda cell: _number(cell.median))),
        ("published median", row(lambda cell: _with_std(cell.published_median, None))),
    ]
    return [(words, values) for words, values in found if any(values)]


def _prior_rows(report: Report, metrics: list[str]) -> list[tuple[str, ...]]:
    """What was published of systems that no arm is."""
    rows: dict[str, dict[str, str]] = {}
    for each in report.prior_work:
        words = "published" if each.statistic == "mean" else f"published {each.statistic}"
        rows.setdefault(f"{each.system}, {words}", {})[each.metric] = _with_std(each.value, each.std)
    found = [(name, *(values.get(metric, "") for metric in metrics)) for name, values in rows.items()]
    return [row for row in found if any(row[1:])]


def _floor_rows(report: Report, metrics: list[str]) -> list[tuple[str, ...]]:
    """Floors of the metrics, a row for each thing that reaches them."""
    named = {
        metric: f"{FLOOR_ROW} ({report.quantity(metric).floor_name})"
        for metric in metrics
        if metric in report.floors
    }
    return [
        (name, *(_number(report.floors[each]) if named.get(each) == name else "" for each in metrics))
        for name in dict.fromkeys(named.values())
    ]


def explained(report: Report, quantity: str) -> str:
    """A quantity with what it means, or is measured in, if that is known: `depth (layers run)`."""
    known = next((each for each in report.quantities if each.name == quantity), None)
    words = one_line(known.meaning or known.unit) if known else ""
    return f"{quantity} ({words})" if words else quantity


def _differences(report: Report) -> list[Grid]:
    found = []
    for quantity in _quantities(report):
        metrics = _of(report, quantity)
        rows = [
            (f"{arm} - {reference}", *(_difference(report.effect(arm, metric)) for metric in metrics))
            for arm in report.arms
            if (reference := _reference(report, arm, metrics))
        ]
        if rows:
            title = f"{quantity}, differences: paired mean [95% interval] (pairs), p after Holm"
            found.append(Grid(title, ("arm", *map(_split, metrics)), tuple(rows)))
    return found


def _reference(report: Report, arm: str, metrics: list[str]) -> str:
    """What the arm is compared with in these metrics; empty if it is not."""
    effects = (report.effect(arm, metric) for metric in metrics)
    return next((effect.reference for effect in effects if effect), "")


def _tallies(report: Report) -> Grid:
    rows = []
    for tally in report.tallies:
        ended = "; ".join(
            f"{phase}: " + ", ".join(f"{count} {name}" for name, count in counts.items())
            for phase, counts in tally.outcomes.items()
        )
        seconds = f"{tally.seconds:.0f} s"
        rows.append((tally.arm, ended or "nothing ran", seconds, _assigned(tally.assignment)))
    return Grid("how trials ended", ("arm", "outcomes", "work", "best assignment"), tuple(rows))


def _assigned(assignment: Mapping[str, object]) -> str:
    return ", ".join(f"{path}={_short(value)}" for path, value in assignment.items()) or "-"


def _posthoc(report: Report) -> list[Grid]:
    """What settings changed after training do: the confirmed checkpoints, read again."""
    settings = list(dict.fromkeys((cell.arm, cell.setting) for cell in report.posthoc))
    if not settings:
        return []
    metrics = [metric for metric in report.metrics if "posthoc" in report.quantity(metric).shown]
    cells = {(cell.arm, cell.setting, cell.metric): cell for cell in report.posthoc}
    rows: list[tuple[str, ...]] = []
    for arm, setting in settings:
        own = [cells.get((arm, setting, metric)) for metric in metrics]
        rows.append((arm, setting, *("-" if cell is None else _interval(cell.estimate) for cell in own)))
        rows += [(f"{arm}, {words}", setting, *values) for words, values in _published_rows(own)]
    title = "confirmed checkpoints read again: mean [95% interval] (n)"
    return [Grid(title, ("arm", "setting", *metrics), tuple(rows))]


def _quantities(report: Report) -> list[str]:
    return list(dict.fromkeys(map(_quantity, report.metrics)))


def _of(report: Report, quantity: str) -> list[str]:
    return [metric for metric in report.metrics if _quantity(metric) == quantity]


def _quantity(metric: str) -> str:
    return metric.rpartition("/")[2]


def _split(metric: str) -> str:
    return metric.rpartition("/")[0]


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _number(value: float | None, sign: str = "") -> str:
    """Three decimals, which a quantity in the hundreds does not need."""
    return "" if value is None else f"{value:{sign}.{3 if abs(value) < WHOLE_FROM else 0}f}"


def _with_std(value: float | None, std: float | None) -> str:
    return _number(value) if std is None else f"{_number(value)} ± {_number(std)}"


def _interval(estimate: Estimate, sign: str = "", *, with_n: bool = True) -> str:
    low, high = (_number(end, sign) for end in (estimate.low, estimate.high))
    ends = f" [{low}, {high}]" if low else ""
    return f"{_number(estimate.mean, sign)}{ends}" + (f" ({estimate.n})" if with_n else "")


def _mean(report: Report, arm: str, metric: str, *, with_n: bool = True) -> str:
    cell = report.cell(arm, metric)
    if cell is None:
        return "-"
    failed = f", {cell.failed} failed" if cell.failed else ""
    return _interval(cell.estimate, with_n=with_n) + failed


def _seeds(report: Report, arm: str, metrics: list[str]) -> str:
    cell = report.cell(arm, metrics[0]) if metrics else None
    return "0" if cell is None else str(cell.estimate.n)


def _difference(effect: Effect | None) -> str:
    return "-" if effect is None else f"{_interval(effect.estimate, '+')}, p={effect.p_holm:.3g}"


def _first_effect(report: Report, arm: str, metrics: list[str]) -> str:
    if arm == report.arms[0]:
        return "baseline"
    effect = report.effect(arm, metrics[0]) if metrics else None
    return "-" if effect is None else _interval(effect.estimate, "+", with_n=False)


def as_rich(grid: Grid) -> "Table":
    """The table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=grid.title, title_justify="left")
    for index, header in enumerate(grid.headers):
        table.add_column(header, no_wrap=index == 0)
    for row in grid.rows:
        table.add_row(*map(Text, row), style="dim" if row[0].startswith(f"{FLOOR_ROW} (") else None)
    return table


def as_markdown(grid: Grid) -> str:
    """The table in GitHub's Markdown, its title above it in bold."""
    lines = [grid.headers, ["---"] * len(grid.headers), *grid.rows]
    escaped = ["| " + " | ".join(map(_markdown_cell, line)) + " |" for line in lines]
    return "\n".join([f"**{markdown_line(grid.title)}**", "", *escaped])


def _markdown_cell(text: str) -> str:
    return markdown_line(one_line(text))


def as_csv(report: Report) -> str:
    """One row an arm and metric, full precision, with n and record ids."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_COLUMNS, restval=None, lineterminator="\n")
    writer.writeheader()
    for cell in (*report.cells, *report.posthoc):
        effect = None if cell.setting else report.effect(cell.arm, cell.metric)
        writer.writerow(_csv_row(cell, report.floors.get(cell.metric), effect))
    return buffer.getvalue()


def _csv_row(cell: Cell, floor: float | None, effect: Effect | None) -> dict[str, Any]:
    row = {
        "arm": _csv_text(cell.arm),
        "setting": _csv_text(cell.setting),
        "metric": _csv_text(cell.metric),
        **_csv_estimate("", cell.estimate),
        "failed": cell.failed,
        "floor": floor,
        "published": cell.published,
        "published_source": _csv_text(cell.published_source),
        "published_std": cell.published_std,
        "median": cell.median,
        "published_median": cell.published_median,
        "record_ids": " ".join(cell.record_ids),
    }
    if effect is not None:
        row |= {**_csv_estimate("difference_", effect.estimate), "p": effect.p, "p_holm": effect.p_holm}
    return row


def _csv_estimate(prefix: str, found: Estimate) -> dict[str, Any]:
    values = (found.n, found.mean, found.low, found.high)
    return {f"{prefix}{name}": value for name, value in zip(CSV_ESTIMATE, values, strict=True)}


def _csv_text(text: str) -> str:
    """A spreadsheet takes a text that begins like a formula for one."""
    return f"'{visible(text)}" if text.startswith(FORMULA) else visible(text)


def as_json(report: Report) -> str:
    """Everything the report holds."""
    return json.dumps(asdict(report), indent=2, sort_keys=True, allow_nan=False) + "\n"
