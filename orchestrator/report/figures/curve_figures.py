"""Draw learning curves, outcomes against cost, and depth by split; one panel per arm.

The reference of the arm is drawn in grey.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.report.figures.style import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    SMALL_PANEL_INCHES,
    Panel,
    shorten,
)
from orchestrator.report.halting.depth_curves import DepthCurve
from orchestrator.report.results.contexts import prefix_context, split_by_context
from orchestrator.report.results.cost_curves import CostCurve
from orchestrator.report.results.curves import ArmCurve
from orchestrator.report.results.details import Details
from orchestrator.report.results.types import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Limits = tuple[float, float]
NUMBER_MARK_POINTS = 11.0
"""Diameter of a numbered mark in points."""
CELL_SHARE = 0.06
"""Size of the cells, as a part of the axes, in which marks share a text."""


def curve_panels(report: Report, details: Details) -> Iterator[Panel]:
    """Yield one panel per quantity and arm; panels of one context have the same axes."""
    for number, metric in enumerate(dict.fromkeys(curve.metric for curve in details.curves), start=1):
        metric_curves = [curve for curve in details.curves if curve.metric == metric]
        for _, part in split_by_context(report):
            curves = {curve.arm: curve for curve in metric_curves if curve.arm in part.arms}
            ends = [end for curve in curves.values() for end in _curve_values(curve)]
            for arm, curve in curves.items():
                reference = curves.get(_reference_of(details, arm))
                yield Panel(
                    f"curve-{number}-{report.arms.index(arm) + 1}",
                    _curve_description(curve),
                    partial(_paint_curve, curve=curve, reference=reference, limits=_pad_range(ends)),
                    title=arm,
                    width=SMALL_PANEL_INCHES,
                    height=2.0,
                )


def _curve_values(curve: ArmCurve) -> list[float]:
    return [*curve.low, *curve.high, *(value for line in curve.failed for _, value in line)]


def _curve_description(curve: ArmCurve) -> str:
    words = f"{curve.metric} of {curve.arm} over steps"
    if curve.steps:
        has_several_seeds = curve.seeds > 1
        seeds = f"mean of {curve.seeds} seeds" if has_several_seeds else "one seed"
        words += f": {seeds} at step {curve.steps[-1]} {curve.mean[-1]:.4g}"
        words += f", from {curve.low[-1]:.4g} to {curve.high[-1]:.4g}" if has_several_seeds else ""
    return words + (f"; {len(curve.failed)} failed" if curve.failed else "")


def _paint_curve(axes: "Axes", curve: ArmCurve, reference: ArmCurve | None, limits: Limits) -> None:
    if reference is not None and reference is not curve:
        axes.plot(reference.steps, reference.mean, color=MUTED, linewidth=1.2, linestyle="--")
    for line in curve.failed:
        axes.plot(*zip(*line, strict=True), color=ORANGE, linewidth=1.0, marker="x", markevery=[-1])
    axes.fill_between(curve.steps, curve.low, curve.high, color=BLUE, alpha=0.2, linewidth=0)
    axes.plot(curve.steps, curve.mean, color=BLUE, marker="o" if len(curve.steps) < 3 else "")
    axes.set_ylim(*limits)
    axes.locator_params(nbins=5)
    axes.set_xlabel("step")


def cost_panels(report: Report, details: Details) -> Iterator[Panel]:
    """Yield panels by outcome, cost and context: first all arms as trained, then each arm re-evaluated."""
    pairs = dict.fromkeys((curve.outcome, curve.cost) for curve in details.costs)
    parts = split_by_context(report)
    for place, (outcome, cost) in enumerate(pairs, start=1):
        pair_curves = [curve for curve in details.costs if (curve.outcome, curve.cost) == (outcome, cost)]
        for number, (context, part) in enumerate(parts, start=1):
            curves = [curve for curve in pair_curves if curve.arm in part.arms]
            name = f"cost-{place}-context-{number}" if context else f"cost-{place}"
            if curves:
                yield from _cost_panels(report, details, curves, name, context)


def _cost_panels(
    report: Report, details: Details, curves: Sequence[CostCurve], name: str, context: str
) -> Iterator[Panel]:
    """Yield the panels of one outcome and cost in one context."""
    yield _all_arms_panel(report, curves, name, context)
    points = [point for curve in curves for point in curve.points]
    limits = _pad_range([point.cost for point in points]), _pad_range([point.value for point in points])
    for index, curve in enumerate((curve for curve in curves if curve.path), start=1):
        references = [other for other in curves if other.arm == _reference_of(details, curve.arm)]
        message = "; ".join(
            f"{point.setting or 'as trained'} {point.cost:.4g}, {point.value:.4g}" for point in curve.points
        )
        yield Panel(
            f"{name}-{index}",
            f"{curve.outcome} of {curve.arm} against {curve.cost}: {message}",
            partial(_paint_cost, curve=curve, references=references, limits=limits),
            title=curve.arm,
            width=SMALL_PANEL_INCHES,
            height=2.1,
        )


def _all_arms_panel(report: Report, curves: Sequence[CostCurve], name: str, context: str) -> Panel:
    points = {report.arms.index(curve.arm) + 1: (curve.arm, curve.points[0]) for curve in curves}
    outcome, cost = curves[0].outcome, curves[0].cost

    def paint(axes: "Axes") -> None:
        _paint_numbers(axes, {number: (point.cost, point.value) for number, (_, point) in points.items()})
        _short_ticks(axes)
        axes.set_xlabel(f"{cost}, mean over seeds")

    message = "; ".join(
        f"{number}. {arm} {point.cost:.4g}, {point.value:.4g}" for number, (arm, point) in points.items()
    )
    title = prefix_context(context, "arms by number, as trained")
    return Panel(name, f"{outcome} against {cost}: {message}", paint, title=title)


def _paint_numbers(axes: "Axes", positions: Mapping[int, tuple[float, float]]) -> None:
    """Draw a mark with its number at each place in data coordinates; close marks share one text above."""
    x, y = zip(*positions.values(), strict=True)
    axes.plot(
        x, y, "o", markersize=NUMBER_MARK_POINTS, markerfacecolor=PAPER, markeredgecolor=BLUE, linestyle=""
    )
    axes.margins(0.12)
    axes.autoscale_view()
    to_axes = axes.transData + axes.transAxes.inverted()
    groups: dict[tuple[int, int], list[int]] = {}
    for number, position in positions.items():
        column, row = (round(float(part) / CELL_SHARE) for part in to_axes.transform(position))
        groups.setdefault((column, row), []).append(number)
    style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 7.5, "color": INK}
    for numbers in groups.values():
        position = positions[numbers[0]]
        if len(numbers) == 1:
            axes.text(*position, str(numbers[0]), **style)
        else:
            text = ", ".join(map(str, numbers))
            axes.annotate(text, position, xytext=(0, NUMBER_MARK_POINTS), textcoords="offset points", **style)


def _paint_cost(
    axes: "Axes", curve: CostCurve, references: Sequence[CostCurve], limits: tuple[Limits, Limits]
) -> None:
    solid: dict[str, Any] = {"color": BLUE, "markersize": 4}
    dashed = {"color": MUTED, "linewidth": 1.2, "linestyle": "--", "markersize": 3}
    for drawn_curve, style in (*((reference, dashed) for reference in references), (curve, solid)):
        points = sorted((point.cost, point.value) for point in drawn_curve.points)
        axes.plot(*zip(*points, strict=True), marker="o", **style)
    axes.plot(curve.points[0].cost, curve.points[0].value, "s", color=INK, markersize=6)
    axes.set_xlim(*limits[0])
    axes.set_ylim(*limits[1])
    axes.locator_params(nbins=5)
    _short_ticks(axes)
    axes.set_xlabel(curve.cost)


def _short_ticks(axes: "Axes") -> None:
    """Format the numbers of the axis with prefixes, e.g. 1.5M for 1,500,000."""
    from matplotlib.ticker import EngFormatter

    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def depth_panels(details: Details) -> Iterator[Panel]:
    """Yield one panel per arm that halts, with its depth on each split."""
    curves = [curve for curve in details.depths if curve.varies]
    top = 1.08 * max((max(curve.high) for curve in curves), default=1.0)
    for index, curve in enumerate(curves, start=1):
        rows = zip(curve.splits, curve.mean, curve.low, curve.high, strict=True)
        message = "; ".join("{} {:.3g} ({:.3g} to {:.3g})".format(*row) for row in rows)
        yield Panel(
            f"depth-{index}",
            f"{curve.quantity} of {curve.arm}: {message}",
            partial(_paint_depth, curve=curve, top=top),
            title=curve.arm,
            width=SMALL_PANEL_INCHES,
            height=2.4,
            bottom=0.95,
        )


def _paint_depth(axes: "Axes", curve: DepthCurve, top: float) -> None:
    positions, means = range(len(curve.splits)), curve.mean
    low_errors = [mean - min(mean, low) for mean, low in zip(means, curve.low, strict=True)]
    high_errors = [max(mean, high) - mean for mean, high in zip(means, curve.high, strict=True)]
    axes.errorbar(
        positions, means, yerr=[low_errors, high_errors], fmt="o-", color=BLUE, capsize=3, markersize=4
    )
    words = [shorten(split, 16) for split in curve.splits]
    axes.set_xticks(positions, words, rotation=35, ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.5, len(positions) - 0.5)
    axes.set_ylim(0, top)


def _reference_of(details: Details, arm: str) -> str:
    return next((facts.reference for facts in details.arms if facts.arm == arm), "")


def _pad_range(values: Sequence[float]) -> Limits:
    """Return the range of the values, extended at both ends."""
    low, high = min(values), max(values)
    padding = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    return low - padding, high + padding
