"""Results as figures: a row an arm, its name above its interval, every seed beneath, floors as lines."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.report.style import (
    BLUE,
    GREEN,
    GRID,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    PURPLE,
    Panel,
    key_below,
    shortened,
)
from orchestrator.report.tables import marked
from orchestrator.report.types import ArmVerdict, Cell, Report, interval_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW, NAMED, SEEDS = 0.5, -0.3, 0.25
"""Inches of a row; how far above its interval, in rows, its name stands, and how far below its seeds."""
LETTERS = 34
"""Of an arm's name beside its numbers."""
KEY_ROW = 0.19
"""Inches of a row of the key."""
VERDICTS = {"better": GREEN, "higher": GREEN, "worse": ORANGE, "lower": ORANGE}
"""Colours of verdicts; all others are grey, for nothing is claimed."""


def figured(report: Report) -> list[str]:
    """Quantities that are drawn: the headlines, then those that are declared to be."""
    declared = [each.name for each in report.quantities if "figure" in each.shown]
    return list(dict.fromkeys((*report.headlines, *declared)))


def outcome_panels(report: Report) -> Iterator[Panel]:
    """Of every primary outcome the values, and the differences that the verdicts are about."""
    for place, metric in enumerate(report.outcomes, start=1):
        if any(report.cell(arm, metric) for arm in report.arms):
            yield _values(report, metric, f"outcome-{place}")
        if any(each.metric == metric and each.difference for each in report.verdicts):
            yield _differences(report, metric, f"difference-{place}")


def metric_panels(report: Report) -> Iterator[Panel]:
    """Of every quantity that is drawn the splits that no primary outcome is of."""
    wanted = [
        metric for quantity in figured(report) for metric in report.metrics if metric.endswith(f"/{quantity}")
    ]
    measured = {cell.metric for cell in report.cells}
    left = (each for each in wanted if each in measured and each not in report.outcomes)
    for place, metric in enumerate(left, start=1):
        yield _values(report, metric, f"values-{place}")


def _values(report: Report, metric: str, name: str) -> Panel:
    split = metric.rpartition("/")[0]
    told = [
        f"{arm} {interval_words(cell.estimate)}" if (cell := report.cell(arm, metric)) else f"{arm} no value"
        for arm in report.arms
    ]
    marks = {each.estimate.low is None for each in report.cells if each.metric == metric}
    keys = 1 + len(marks) + (metric in report.floors) + len(_published_of(report, metric))
    rows = -(-keys // 2)
    return Panel(
        name,
        f"{metric}, mean with 95% interval and every seed: {'; '.join(told)}",
        partial(_paint_values, report=report, metric=metric),
        title=metric
        if metric in report.outcomes
        else f"{metric}{marked(report, metric).removeprefix(split)}",
        height=0.9 + ROW * len(report.arms) + KEY_ROW * rows,
        left=0.28,
        bottom=0.46 + KEY_ROW * rows,
    )


def _published_of(report: Report, metric: str) -> list[str]:
    cells = [each for each in report.cells if each.metric == metric]
    found = ["published"] if any(each.published is not None for each in cells) else []
    return [
        *found,
        *(["published median"] if any(each.published_median is not None for each in cells) else []),
    ]


def _paint_values(axes: "Axes", report: Report, metric: str) -> None:
    _rows(axes, len(report.arms))
    for row, arm in enumerate(report.arms):
        cell = report.cell(arm, metric)
        if cell is None:
            _label(axes, row, arm, f"{report.finished(arm)}: no value")
            continue
        _label(axes, row, arm, interval_words(cell.estimate))
        _interval(axes, row, cell, BLUE)
        # Every seed beneath its mean: a collapsed one must not hide in an interval.
        seeds = [value for _, value in cell.by_seed]
        axes.plot(
            seeds, [row + SEEDS] * len(seeds), "o", markersize=3, alpha=0.7, color=MUTED, label="one seed"
        )
        for value, marker, label in (
            (cell.published, "D", "published"),
            (cell.published_median, "x", "published median"),
        ):
            if value is not None:
                axes.plot(value, row, marker, markerfacecolor="none", color=PURPLE, label=label)
    if metric in report.floors:
        known = report.quantity(metric)
        label = known.floor_name if known.floor is None else "declared floor"
        axes.axvline(report.floors[metric], linestyle=":", color=INK, label=f"floor: {label}")
    _roomy(axes)
    key_below(axes, -0.02, columns=2, handlelength=1.4, columnspacing=1.2, labelspacing=0.3)


def _interval(axes: "Axes", row: float, cell: Cell, colour: str) -> None:
    mean, low, high = cell.estimate.mean, cell.estimate.low, cell.estimate.high
    whiskers = None if low is None or high is None else [[mean - low], [high - mean]]
    label = "mean" if whiskers is None else "mean, 95% interval"
    axes.errorbar(mean, row, xerr=whiskers, fmt="s", markersize=5, capsize=3, color=colour, label=label)


def _differences(report: Report, metric: str, name: str) -> Panel:
    lines = [each.line for each in report.verdicts if each.metric == metric]
    marks = {_mark(each)[1] for each in report.verdicts if each.metric == metric and each.difference}
    rows = -(-(len(marks) + 1 + (_margin(report, metric) is not None)) // 2)
    return Panel(
        name,
        f"Differences in {metric}: {'; '.join(lines)}",
        partial(_paint_differences, report=report, metric=metric),
        title=f"{metric}, differences",
        height=0.9 + ROW * len(lines) + KEY_ROW * rows,
        left=0.28,
        bottom=0.46 + KEY_ROW * rows,
    )


def _paint_differences(axes: "Axes", report: Report, metric: str) -> None:
    verdicts = [each for each in report.verdicts if each.metric == metric]
    _rows(axes, len(verdicts))
    axes.axvline(0.0, color=INK, linewidth=1.0)
    margin = _margin(report, metric)
    if margin is not None:
        axes.axvspan(-margin, margin, color=GRID, alpha=0.5, linewidth=0, label=f"margin of {margin:g}")
    for row, each in enumerate(verdicts):
        if each.difference is None:
            _label(axes, row, each.arm, "no seed of both")
            continue
        found = each.difference
        colour, label = _mark(each)
        _label(axes, row, each.arm, interval_words(found, "+"))
        whiskers = (
            None
            if found.low is None or found.high is None
            else [[found.mean - found.low], [found.high - found.mean]]
        )
        axes.errorbar(
            found.mean, row, xerr=whiskers, fmt="s", markersize=5, capsize=3, color=colour, label=label
        )
        seeds = _paired(report, each.arm, each.reference, metric)
        axes.plot(
            seeds, [row + SEEDS] * len(seeds), "o", markersize=3, alpha=0.7, color=MUTED, label="one seed"
        )
    _roomy(axes)
    key_below(axes, -0.02, columns=2, handlelength=1.4, columnspacing=1.2, labelspacing=0.3)


def _margin(report: Report, metric: str) -> float | None:
    """The least difference that matters, which the first outcome alone has."""
    return report.answer.margin if report.answer and metric == report.outcomes[0] else None


def _mark(verdict: ArmVerdict) -> tuple[str, str]:
    """Colour of an arm's difference, and what the key says of it."""
    claimed, found = verdict.kind in VERDICTS, verdict.difference
    said = verdict.kind if claimed else "no claim"
    bare = found is None or found.low is None
    return VERDICTS.get(verdict.kind, MUTED), said if bare else f"{said}, interval of the family"


def _paired(report: Report, arm: str, reference: str, metric: str) -> list[float]:
    """By seed the arm minus its reference."""
    own, theirs = report.cell(arm, metric), report.cell(reference, metric)
    if own is None or theirs is None:
        return []
    other = dict(theirs.by_seed)
    return [value - other[seed] for seed, value in own.by_seed if seed in other]


def _rows(axes: "Axes", count: int) -> None:
    axes.set_ylim(count - 0.55, -0.62)
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=6)
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.06)


def _roomy(axes: "Axes") -> None:
    """An axis of values that are all the same is no magnifying glass for rounding errors."""
    low, high = axes.get_xlim()
    middle = (low + high) / 2
    if high - low < 1e-6 * max(1.0, abs(middle)):
        axes.set_xlim(middle - 0.5, middle + 0.5)


def _label(axes: "Axes", row: int, arm: str, words: str) -> None:
    """The arm's name, and at the other end its numbers."""
    # On paper of their own, for lines cross them.
    known: dict[str, Any] = {
        "transform": axes.get_yaxis_transform(),
        "va": "center",
        "bbox": {"facecolor": PAPER, "linewidth": 0, "pad": 0.6},
    }
    axes.text(0.0, row + NAMED, shortened(arm, LETTERS), fontsize=8.5, **known)
    axes.text(1.0, row + NAMED, words, ha="right", fontsize=7.5, color=MUTED, **known)
