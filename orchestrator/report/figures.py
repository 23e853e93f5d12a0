"""The report as figures: one panel a split; mean, interval and seeds of each arm, floors as lines."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.report.tables import explained, marked
from orchestrator.report.types import Report

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

BELOW = 0.25
"""How far below their mean single seeds are drawn, in rows."""
NAME_INCHES = 0.1
"""Of one letter of an arm's name."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
"""Told apart by colour-blind readers (Okabe and Ito 2008)."""


def figured(report: Report) -> list[str]:
    """Quantities that are drawn: the headlines, then those that are declared to be."""
    declared = [each.name for each in report.quantities if "figure" in each.shown]
    return list(dict.fromkeys((*report.headlines, *declared)))


def draw(report: Report, quantity: str, path: Path) -> bool:
    """Write the figure of one quantity (`accuracy`, `depth`) as PNG; False if there was nothing to draw."""
    metrics = [metric for metric in report.metrics if metric.endswith(f"/{quantity}")]
    if not metrics:
        return False
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    height = 1.6 + 0.38 * len(report.arms)
    figure, axes = plt.subplots(
        1,
        len(metrics),
        figsize=(max(1.6, NAME_INCHES * max(map(len, report.arms))) + 2.6 * len(metrics), height),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, metric in zip(axes[0], metrics, strict=True):
        _panel(axis, report, metric)
    axes[0][0].set_yticks(range(len(report.arms)), report.arms)
    axes[0][0].invert_yaxis()
    if named := _named(axes[0]):
        # Below the panels: on them it would hide an arm.
        figure.legend(named.values(), named, fontsize="small", loc="outside lower center", ncols=len(named))
    figure.suptitle(
        f"{report.sweep}: {explained(report, quantity)}, mean, 95% interval and every seed", fontsize="medium"
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True


def _named(axes: "Iterable[Axes]") -> dict[str, "Artist"]:
    """What a legend explains, over all panels, each name once."""
    found: dict[str, Artist] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    return found


def _panel(axis: "Axes", report: Report, metric: str) -> None:
    known = report.quantity(metric)
    for row, arm in enumerate(report.arms):
        cell = report.cell(arm, metric)
        if cell is None:
            continue
        mean, low, high = cell.estimate.mean, cell.estimate.low, cell.estimate.high
        whiskers = None if low is None or high is None else [[mean - low], [high - mean]]
        colour = COLOURS[row % len(COLOURS)]
        axis.errorbar(mean, row, xerr=whiskers, fmt="o", capsize=3, color=colour)
        # Every seed beneath its mean: a collapsed one must not hide in an interval.
        seeds = [value for _, value in cell.by_seed]
        axis.plot(seeds, [row + BELOW] * len(seeds), "o", markersize=3, alpha=0.6, color=colour)
        for value, marker, label in (
            (cell.published, "|", "published"),
            (cell.published_median, "x", "published median"),
        ):
            if value is not None:
                axis.plot(
                    *(value, row),
                    marker=marker,
                    markersize=14,
                    color="#555555",
                    linestyle="none",
                    label=label,
                )
    if metric in report.floors:
        label = known.floor_name if known.floor is None else "declared floor"
        axis.axvline(report.floors[metric], linestyle=":", color="#555555", label=label)
    axis.set_title(marked(report, metric), fontsize="small")
    axis.grid(axis="x", alpha=0.3)
    axis.margins(y=0.15)
