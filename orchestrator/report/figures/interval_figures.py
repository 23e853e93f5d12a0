"""Draw results as figures with one row per arm.

A row has the name of the arm above its interval, all seeds below it, and the numbers next to it. Lines that
cross all rows (floors, zero, the margin) are interrupted at the names.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.report.figures.style import (
    BLUE,
    GREEN,
    GRID,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    PURPLE,
    Panel,
    draw_key,
    shorten,
)
from orchestrator.report.results.contexts import prefix_context, split_by_context
from orchestrator.report.results.number_formats import choose_text, format_interval
from orchestrator.report.results.statistics import Estimate
from orchestrator.report.results.types import ArmVerdict, Report
from orchestrator.report.writers.tables import role_note
from orchestrator.statistics.paired import ZERO_TOLERANCE, subtract

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_INCHES, NAME_OFFSET, SEEDS_OFFSET = 0.5, -0.3, 0.25
"""Height of a row in inches; distance in rows from the interval up to the name, and down to the seeds."""
LINE_ENDS = (-0.16, 0.42)
"""Start and end of the line segments in a row, in rows from its interval: below the name."""
MAX_NAME_LETTERS = 34
"""Maximum number of letters of an arm's name; the widest letters fill the panel."""
LEFT_INCHES = 0.28
"""Space to the left of the axes in inches."""
LETTER_INCHES, COLUMN_GAP_INCHES = 0.062, 0.1
"""Maximum width of a letter of an arm's numbers, and space on each side of their column, in inches."""
TICK_INCHES = 0.5
"""Width in inches for one number of the axis."""
KEY_ROW_INCHES = 0.19
"""Height of a row of the key in inches."""
ONLY_SEED_LABEL = "only seed"
"""Label in the key for the mark of an arm that has only one seed."""
VERDICT_COLOURS = {"better": GREEN, "worse": ORANGE, "higher": BLUE, "lower": BLUE, "no difference": INK}
"""Colours of verdicts. Higher and lower are neutral; verdicts without a claim are grey."""
WITHIN_MARGIN_LABEL = "within margin"
"""Label in the key for verdicts of no difference larger than the margin, which the figure displays too."""


def figure_quantities(report: Report) -> list[str]:
    """Return the quantities that have figures: the headlines first, then quantities declared for figures."""
    declared_names = [metric.name for metric in report.quantities if "figure" in metric.shown]
    return list(dict.fromkeys((*report.headlines, *declared_names)))


def outcome_panels(report: Report) -> Iterator[Panel]:
    """Return panels for the values and the tested differences of every primary outcome, by context."""
    return _panels_by_context(report, _outcome_panels)


def _panels_by_context(report: Report, make_panels: Callable[[Report], Iterator[Panel]]) -> Iterator[Panel]:
    """Yield the panels that `make_panels` returns for each context."""
    for place, (context, part) in enumerate(split_by_context(report), start=1):
        for panel in make_panels(part):
            name = f"{panel.name}-context-{place}" if context else panel.name
            title, label = (prefix_context(context, text) for text in (panel.title, panel.label))
            yield replace(panel, name=name, title=title, label=label)


def _outcome_panels(report: Report) -> Iterator[Panel]:
    for place, metric in enumerate(report.outcomes, start=1):
        if any(report.cell(arm, metric) for arm in report.arms):
            yield _value_panel(report, metric, f"outcome-{place}")
        if any(verdict.metric == metric and verdict.difference for verdict in report.verdicts):
            yield _difference_panel(report, metric, f"difference-{place}")


def metric_panels(report: Report) -> Iterator[Panel]:
    """Return panels for splits without a primary outcome, by quantity and context."""
    return _panels_by_context(report, _metric_panels)


def _metric_panels(report: Report) -> Iterator[Panel]:
    known_metrics = {cell.metric for cell in report.cells}.difference(report.outcomes)
    metrics = [metric for metric in report.metrics if metric in known_metrics]
    quantities = figure_quantities(report)
    drawn_metrics = [
        name for quantity in quantities for name in metrics if report.splits.quantity(name) == quantity
    ]
    for place, metric in enumerate(drawn_metrics, start=1):
        yield _value_panel(report, metric, f"values-{place}")


def _value_panel(report: Report, metric: str, name: str) -> Panel:
    words = [_value_text(report, arm, metric) for arm in report.arms]
    texts = [f"{arm} {text}" for arm, text in zip(report.arms, words, strict=True)]
    estimates = [cell.estimate for cell in report.cells if cell.metric == metric]
    keys = len({*map(_mean_label, estimates)}) + any(estimate.n > 1 for estimate in estimates)
    keys += (metric in report.floors) + len(_published_labels(report, metric))
    title = metric if metric in report.outcomes else f"{metric}{role_note(report, metric)}"
    marks = choose_text(
        estimates,
        intervals=f"mean with 95% interval and every {report.unit}",
        mean_text=f"mean and every {report.unit}",
        single_seed=f"one {report.unit}",
    )
    label = f"{metric}, {marks}: {'; '.join(texts)}"
    panel = _row_panel(name, title, partial(_paint_values, report=report, metric=metric), words, keys)
    return replace(panel, label=label)


def _value_text(report: Report, arm: str, metric: str) -> str:
    """Return the numbers of an arm, or why it has none."""
    cell = report.cell(arm, metric)
    return f"{report.finished_text(arm)}: no value" if cell is None else format_interval(cell.estimate)


def _row_panel(
    name: str, title: str, paint: Callable[["Axes"], None], words: Sequence[str], keys: int
) -> Panel:
    """Return a panel with a row for each of `words`, a column for them, and a key with `keys` marks."""
    key = KEY_ROW_INCHES * -(-keys // 2)
    height, column = (
        0.9 + ROW_INCHES * len(words) + key,
        2 * COLUMN_GAP_INCHES + LETTER_INCHES * max(map(len, words)),
    )
    return Panel(name, title, paint, title, height, left=LEFT_INCHES, bottom=0.46 + key, right=column)


def _published_labels(report: Report, metric: str) -> list[str]:
    cells = [cell for cell in report.cells if cell.metric == metric]
    has_mean = any(cell.published is not None for cell in cells)
    has_median = any(cell.published_median is not None for cell in cells)
    return ["published"] * has_mean + ["published median"] * has_median


def _paint_values(axes: "Axes", report: Report, metric: str) -> None:
    _set_up_rows(axes, [_value_text(report, arm, metric) for arm in report.arms])
    if metric in report.floors:
        declared = report.quantity(metric)
        label = declared.floor_name if declared.floor is None else "declared floor"
        _paint_line(axes, report.floors[metric], len(report.arms), linestyle=":", label=f"floor: {label}")
    for row, arm in enumerate(report.arms):
        _paint_name(axes, row, arm)
        cell = report.cell(arm, metric)
        if cell is None:
            continue
        _paint_interval(axes, row, cell.estimate, BLUE, _mean_label(cell.estimate))
        _paint_seeds(axes, row, [value for _, value in cell.by_unit], report.unit)
        style: dict[str, Any] = {"markerfacecolor": "none", "color": PURPLE}
        if cell.published is not None:
            axes.plot(cell.published, row, "D", label="published", **style)
        if cell.published_median is not None:
            axes.plot(cell.published_median, row, "x", label="published median", **style)
    _complete_axis(axes)


def _mean_label(estimate: Estimate) -> str:
    """Return the label of a mean in the key."""
    return choose_text(
        [estimate], intervals="mean, 95% interval", mean_text="mean", single_seed=ONLY_SEED_LABEL
    )


def _paint_interval(axes: "Axes", row: float, estimate: Estimate, colour: str, label: str) -> None:
    mean, low, high = estimate.mean, estimate.low, estimate.high
    whiskers = None if low is None or high is None else [[mean - low], [high - mean]]
    axes.errorbar(mean, row, xerr=whiskers, fmt="s", markersize=5, capsize=3, color=colour, label=label)


def _paint_seeds(axes: "Axes", row: int, values: Sequence[float], unit: str) -> None:
    """Draw each value below its mean, so that a collapsed seed is visible; a single value is the mean."""
    if len(values) > 1:
        places = [row + SEEDS_OFFSET] * len(values)
        axes.plot(values, places, "o", markersize=3, alpha=0.7, color=MUTED, label=f"one {unit}")


def _difference_panel(report: Report, metric: str, name: str) -> Panel:
    verdicts = [verdict for verdict in report.verdicts if verdict.metric == metric]
    drawn_verdicts = [verdict for verdict in verdicts if verdict.difference]
    keys = len({_verdict_mark(verdict)[1] for verdict in drawn_verdicts}) + (
        report.margin(metric) is not None
    )
    keys += any(verdict.difference and verdict.difference.n > 1 for verdict in drawn_verdicts)
    words = [_difference_text(report, verdict) for verdict in verdicts]
    paint = partial(_paint_differences, report=report, verdicts=verdicts, margin=report.margin(metric))
    panel = _row_panel(name, f"{metric}, differences", paint, words, keys)
    return replace(panel, label=f"Differences in {metric}: {'; '.join(verdict.line for verdict in verdicts)}")


def _difference_text(report: Report, verdict: ArmVerdict) -> str:
    if verdict.difference is None:
        return "no seed in both arms"
    return format_interval(verdict.difference, "+", report.margin(verdict.metric))


def _paint_differences(
    axes: "Axes", report: Report, verdicts: Sequence[ArmVerdict], margin: float | None
) -> None:
    _set_up_rows(axes, [_difference_text(report, verdict) for verdict in verdicts])
    if margin is not None:
        style: dict[str, Any] = {
            "color": GRID,
            "alpha": 0.5,
            "linewidth": 0,
            "label": f"margin of {margin:g}",
        }
        for row in range(len(verdicts)):
            axes.fill_betweenx([row + end for end in LINE_ENDS], -margin, margin, **style)
    _paint_line(axes, 0.0, len(verdicts), linewidth=1.0)
    for row, verdict in enumerate(verdicts):
        _paint_name(axes, row, verdict.arm)
        if verdict.difference is not None:
            _paint_interval(axes, row, verdict.difference, *_verdict_mark(verdict))
            _paint_seeds(axes, row, _paired_differences(report, verdict), report.unit)
    _complete_axis(axes)


def _verdict_mark(verdict: ArmVerdict) -> tuple[str, str]:
    """Return the colour of an arm's difference and its label in the key."""
    kind, estimate = verdict.kind or "", verdict.difference
    text = WITHIN_MARGIN_LABEL if kind == "no difference" else kind if kind in VERDICT_COLOURS else "no claim"
    if verdict.exploratory:
        text = f"{text}, exploratory"
    if estimate is not None and estimate.n == 1:
        text = f"{text}, {ONLY_SEED_LABEL}"
    elif estimate is not None and estimate.low is not None and not verdict.exploratory:
        text = f"{text}, interval of the family"
    return VERDICT_COLOURS.get(kind, MUTED), text


def _paired_differences(report: Report, verdict: ArmVerdict) -> list[float]:
    """Return the differences between arm and reference, by seed or by repeat."""
    cells = [report.cell(arm, verdict.metric) for arm in (verdict.arm, verdict.reference)]
    arm_values, reference_values = (dict(cell.by_unit) if cell else {} for cell in cells)
    return [
        subtract(value, reference_values[unit])
        for unit, value in arm_values.items()
        if unit in reference_values
    ]


def _set_up_rows(axes: "Axes", words: Sequence[str]) -> None:
    """Set up one row per text and draw each text next to the axes, where no line crosses it."""
    axes.set_ylim(len(words) - 0.55, -0.62)
    axes.set_yticks([])
    axes_inches = axes.get_position().width * axes.figure.get_figure(root=True).get_figwidth()
    axes.locator_params(axis="x", nbins=max(2, min(6, int(axes_inches / TICK_INCHES))))
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.06)
    transform = axes.get_yaxis_transform()
    for row, label in enumerate(words):
        axes.text(
            1 + COLUMN_GAP_INCHES / axes_inches,
            row,
            label,
            transform=transform,
            va="center",
            fontsize=7.5,
            color=MUTED,
        )


def _paint_line(axes: "Axes", value: float, rows: int, **style: Any) -> None:
    """Draw a vertical line at a value in every row, below the name."""
    for row in range(rows):
        axes.plot([value, value], [row + end for end in LINE_ENDS], color=INK, **style)


def _complete_axis(axes: "Axes") -> None:
    """Draw the key, and widen an axis of equal values, so that it does not magnify rounding errors."""
    low, high = axes.dataLim.intervalx
    middle = (low + high) / 2
    if high - low <= ZERO_TOLERANCE * max(abs(low), abs(high)):
        axes.set_xlim(middle - 0.5, middle + 0.5)
    draw_key(axes, -0.02, columns=2, handlelength=1.4, columnspacing=1.2, labelspacing=0.3)


def _paint_name(axes: "Axes", row: int, arm: str) -> None:
    # The background hides the grid behind the name.
    background = {"facecolor": PAPER, "linewidth": 0, "pad": 0.6}
    transform = axes.get_yaxis_transform()
    words = shorten(arm, MAX_NAME_LETTERS)
    axes.text(0.0, row + NAME_OFFSET, words, transform=transform, va="center", fontsize=8.5, bbox=background)
