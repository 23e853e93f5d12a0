"""Draw depth by length and by operators inside a split, and use of experts."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from orchestrator.report.figures.style import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    PURPLE,
    BoxEnds,
    Panel,
    draw_key,
    fill_boxes,
    shorten,
)
from orchestrator.report.halting.tallies import BinnedDepth, DepthBin, ExpertUse, Shares

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_INCHES = 0.3
"""Height of the row of a class in inches."""
SPLIT_COLOURS: tuple[str, ...] = (BLUE, ORANGE, GREEN, PURPLE)
SPLIT_MARKS = "os^Dv"
KEY_ROW_INCHES, KEY_COLUMNS = 0.17, 2
"""Height of a line of the key in inches, and number of split names per line."""
MAX_NUMBERED_EXPERTS = 8
"""Maximum number of experts for which shares are written into the cells."""
NUM_SHADES = 40
"""Number of shades of cells; finer shades are indistinguishable."""
LIGHT_TEXT_SHARE = 0.55
"""Part of the greatest share from which a number is written light on dark."""


def binned_panels(depths: Sequence[BinnedDepth], quantity: str) -> Iterator[Panel]:
    """Yield one panel per arm that halts, with one line for each split."""
    by_arm: dict[str, list[BinnedDepth]] = {}
    for depth in depths:
        by_arm.setdefault(depth.arm, []).append(depth)
    by_arm = {
        arm: arm_depths for arm, arm_depths in by_arm.items() if any(depth.varies for depth in arm_depths)
    }
    rows = [row for arm_depths in by_arm.values() for depth in arm_depths for row in depth.bins]
    top = (
        max(
            (max(row.mean, row.ninetieth, row.mean if row.high is None else row.high) for row in rows),
            default=1.0,
        )
        * 1.08
    )
    for index, (arm, arm_depths) in enumerate(by_arm.items(), start=1):
        key_rows = -(-len(arm_depths) // KEY_COLUMNS) if any(depth.split for depth in arm_depths) else 0
        texts = ". ".join(_depth_text(depth, quantity) for depth in arm_depths)
        yield Panel(
            f"{quantity}-{index}",
            f"Depth of {arm} by number of {quantity}: {texts}",
            partial(_paint_depths, depths=arm_depths, quantity=quantity, top=top),
            title=arm,
            height=2.2 + KEY_ROW_INCHES * key_rows,
            bottom=0.5 + KEY_ROW_INCHES * key_rows,
        )


def _depth_text(depth: BinnedDepth, quantity: str) -> str:
    message = "; ".join(_bin_text(depth_bin, quantity) for depth_bin in depth.bins)
    return f"{depth.split}: {message}" if depth.split else message


def _bin_text(row: DepthBin, quantity: str) -> str:
    label = str(row.fewest) if row.fewest == row.most else f"{row.fewest}-{row.most}"
    interval = "" if row.low is None or row.high is None else f" [{row.low:.3g}, {row.high:.3g}]"
    spread = f"({row.tenth:.3g} to {row.ninetieth:.3g}), {row.examples} examples"
    return f"{label} {quantity} {row.mean:.3g}{interval} {spread}"


def _paint_depths(axes: "Axes", depths: Sequence[BinnedDepth], quantity: str, top: float) -> None:
    # Markers differ too, since there are four colours and possibly more splits.
    styles = cycle(
        zip(
            SPLIT_COLOURS * len(SPLIT_MARKS),
            (mark for mark in SPLIT_MARKS for _ in SPLIT_COLOURS),
            strict=True,
        )
    )
    for depth, (colour, marker) in zip(depths, styles, strict=False):
        bins = depth.bins
        positions = [(row.fewest + row.most) / 2 for row in bins]
        tenths, ninetieths = [row.tenth for row in bins], [row.ninetieth for row in bins]
        axes.fill_between(positions, tenths, ninetieths, color=colour, alpha=0.15, linewidth=0)
        low_errors = [0.0 if row.low is None else row.mean - row.low for row in bins]
        high_errors = [0.0 if row.high is None else row.high - row.mean for row in bins]
        axes.errorbar(
            positions,
            [row.mean for row in bins],
            yerr=[low_errors, high_errors],
            fmt=f"{marker}-",
            color=colour,
            capsize=2,
            markersize=3.5,
            label=shorten(depth.split, 24) or None,
        )
    axes.set_ylim(0, top)
    axes.locator_params(axis="x", integer=True, nbins=6)
    axes.set_xlabel(quantity)
    draw_key(
        axes, 0.0, KEY_COLUMNS, offset_inches=0.46, handlelength=1.6, columnspacing=1.0, labelspacing=0.2
    )


def expert_panels(expert_uses: Sequence[ExpertUse]) -> Iterator[Panel]:
    """Yield two heat maps per mixture: by class of word, and by layer if layers were counted."""
    for index, use in enumerate(expert_uses, start=1):
        title = f"{shorten(use.arm, 20)}, {use.mixture}, seed {use.seed}"
        name, quantity = f"experts-{index}", f"Experts of the {use.mixture} of {use.arm}"
        yield _shares_panel(name, f"{quantity} by class of word", title, use.classes, use.shares)
        if use.layers:
            layers = [f"layer {number}" for number, _ in use.layers]
            yield _shares_panel(f"{name}-layers", f"{quantity} by layer", title, layers, use.layer_shares)


def _shares_panel(name: str, quantity: str, title: str, rows: Sequence[str], shares: Shares) -> Panel:
    words = []
    for row, row_shares in zip(rows, shares, strict=True):
        likeliest = sorted(enumerate(row_shares, start=1), key=lambda item: -item[1])[:3]
        words.append(f"{row}: {', '.join(f'expert {expert} {share:.0%}' for expert, share in likeliest)}")
    return Panel(
        name,
        f"{quantity}, the three most chosen: {'; '.join(words)}",
        partial(_paint_experts, rows=rows, shares=shares),
        title=title,
        height=0.36 + 0.66 + ROW_INCHES * len(rows),
        left=1.0,
        bottom=0.66,
    )


def _paint_experts(axes: "Axes", rows: Sequence[str], shares: Shares) -> None:
    greatest = max((share for row in shares for share in row), default=0.0) or 1.0
    experts = max((len(row) for row in shares), default=1)
    boxes: dict[float, list[BoxEnds]] = {}
    for row_index, row in enumerate(shares):
        for expert, share in enumerate(row):
            opacity = share / greatest
            step = round(opacity * NUM_SHADES) / NUM_SHADES
            boxes.setdefault(step, []).append((expert, row_index, expert + 1, row_index + 0.94))
            if experts <= MAX_NUMBERED_EXPERTS:
                style = {
                    "color": PAPER if opacity > LIGHT_TEXT_SHARE else INK,
                    "ha": "center",
                    "va": "center",
                }
                axes.text(expert + 0.5, row_index + 0.47, f"{share:.0%}", style, fontsize=7)
    for step, arm_boxes in boxes.items():
        fill_boxes(axes, arm_boxes, step)
    axes.grid(visible=False)
    axes.set_xlim(0, experts)
    axes.set_ylim(len(rows), 0)
    axes.set_yticks(
        [row_index + 0.47 for row_index in range(len(rows))], [shorten(label, 13) for label in rows]
    )
    step = 1 if experts <= MAX_NUMBERED_EXPERTS else -(-experts // 12)
    labelled = range(0, experts, step)
    axes.set_xticks([expert + 0.5 for expert in labelled], [str(expert + 1) for expert in labelled])
    axes.set_xlabel(f"expert; the fullest cell is {greatest:.0%} of its row's choices", color=MUTED)
