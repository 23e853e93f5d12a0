"""Draw lengths and labels as a figure, one row per split, with histograms as shares of the split."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.cli.display.data_views import SplitView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LENGTH_BINS = 60
MAX_LABELS = 20
LENGTH_COLOUR, LABEL_COLOUR, FLOOR_COLOUR = "#0072B2", "#009E73", "#D55E00"
ROW_INCHES = 1.7
MAX_HORIZONTAL_LENGTH = 3
"""Maximum length of label names that are drawn horizontally."""


def draw_figure(views: Sequence[SplitView], path: Path) -> None:
    """Write the figure as PNG. Raise `OSError` if `path` cannot be written."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    size = (9.0, 0.6 + ROW_INCHES * len(views))
    figure, axes = plt.subplots(len(views), 2, figsize=size, squeeze=False, layout="constrained")
    for row, view in zip(axes, views, strict=True):
        _draw_lengths(row[0], view)
        _draw_labels(row[1], view)
        for axis in row:
            axis.tick_params(labelsize="x-small")
    try:
        figure.savefig(path, dpi=150)
    finally:
        plt.close(figure)


def _draw_lengths(axis: "Axes", view: SplitView) -> None:
    lengths, role = view.facts.lengths, view.info.role
    _draw_histogram(axis, lengths, LENGTH_COLOUR)
    count = f"batch of {len(lengths)}" if view.info.streamed else f"n = {len(lengths):,}"
    name = view.title if view.info.name == role else f"{view.title} ({role})"
    axis.set_title(f"{name}, {count}, tokens: mean {lengths.mean():.1f}", fontsize="small")
    axis.set_ylabel("share", fontsize="small")


def _draw_labels(axis: "Axes", view: SplitView) -> None:
    """Draw the shares of labels, or the lengths of answers for tasks with text answers."""
    facts = view.facts
    if facts.answer_lengths is not None:
        _draw_histogram(axis, facts.answer_lengths, LABEL_COLOUR)
        words = f"answers of {len(facts.labels):,} tokens: mean {facts.answer_lengths.mean():.1f}"
        axis.set_title(f"{words}, commonest {facts.floor:.1%}", fontsize="small")
        return
    commonest = sorted(facts.labels, key=lambda name: -facts.labels[name])[:MAX_LABELS]
    names = [name for name in facts.labels if name in set(commonest)]
    total = sum(facts.labels.values())
    axis.bar(range(len(names)), [facts.labels[name] / total for name in names], color=LABEL_COLOUR)
    axis.axhline(facts.floor, linestyle=":", color=FLOOR_COLOUR)
    if max(map(len, names)) > MAX_HORIZONTAL_LENGTH:
        axis.set_xticks(range(len(names)), names, rotation=25, ha="right")
    else:
        axis.set_xticks(range(len(names)), names)
    num_hidden = len(facts.labels) - len(names)
    note = f", {num_hidden:,} rarer ones not drawn" if num_hidden else ""
    axis.set_title(f"labels; dotted: floor {facts.floor:.1%}{note}", fontsize="small")


def _draw_histogram(axis: "Axes", values: np.ndarray, colour: str) -> None:
    """Draw shares of integers, with integer bin widths so that no bin is empty only because of rounding."""
    from matplotlib.ticker import MaxNLocator

    low, high = int(values.min()), int(values.max())
    width = max(1, -(-(high - low + 1) // LENGTH_BINS))
    edges = np.arange(low, high + width + 1, width) - 0.5
    axis.hist(values, bins=edges.tolist(), weights=np.full(len(values), 1 / len(values)), color=colour)
    # Without limits, a single length would be drawn as wide as the panel.
    axis.set_xlim(min(edges[0], low - 5), max(edges[-1], high + 5))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
