"""Draw depth by length and by operators inside a split, and use of experts."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Literal

from orchestrator.report.figures.style import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    PURPLE,
    Box,
    Panel,
    draw_key,
    fill_boxes,
    shorten,
)
from orchestrator.report.halting.tallies import BinnedDepth, DepthBin, ExpertUse, Shares

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.3
"""Height of the row of a class in inches."""
COLOURS: tuple[str, ...] = (BLUE, ORANGE, GREEN, PURPLE)
MARKS = "os^Dv"
KEY_ROW, KEY_COLUMNS = 0.17, 2
"""Height of a line of the key in inches, and number of split names per line."""
MAX_NUMBERED = 8
"""Maximum number of experts for which shares are written into the cells."""
SHADES = 40
"""Number of shades of cells; finer shades are indistinguishable."""
LIGHT_TEXT_FROM = 0.55
"""Part of the greatest share from which a number is written light on dark."""


def binned_panels(depths: Sequence[BinnedDepth], quantity: Literal["tokens", "operators"]) -> Iterator[Panel]:
    """Yield one panel per arm that halts, with one line for each split."""
    by_arm: dict[str, list[BinnedDepth]] = {}
    for binned_depth in depths:
        by_arm.setdefault(binned_depth.arm, []).append(binned_depth)
    depths_by_arm = {
        arm: arm_depths
        for arm, arm_depths in by_arm.items()
        if any(binned_depth.moves for binned_depth in arm_depths)
    }
    ends = (
        value
        for arm_depths in depths_by_arm.values()
        for binned_depth in arm_depths
        for depth_bin in binned_depth.bins
        for value in _bin_values(depth_bin)
    )
    top = max(ends, default=1.0) * 1.08
    for index, (arm, arm_depths) in enumerate(depths_by_arm.items(), start=1):
        rows = (
            -(-len(arm_depths) // KEY_COLUMNS)
            if any(binned_depth.split for binned_depth in arm_depths)
            else 0
        )
        texts = ". ".join(_depth_text(depth, quantity) for depth in arm_depths)
        yield Panel(
            f"{quantity}-{index}",
            f"Depth of {arm} by number of {quantity}: {texts}",
            partial(_paint_depths, depths=arm_depths, quantity=quantity, top=top),
            title=arm,
            height=2.2 + KEY_ROW * rows,
            bottom=0.5 + KEY_ROW * rows,
        )


def _bin_values(depth_bin: DepthBin) -> Iterator[float]:
    yield from (
        depth_bin.mean,
        depth_bin.ninetieth,
        depth_bin.mean if depth_bin.high is None else depth_bin.high,
    )


def _depth_text(depth: BinnedDepth, quantity: str) -> str:
    message = "; ".join(
        f"{_bin_label(depth_bin.fewest, depth_bin.most)} {quantity} {depth_bin.mean:.3g}"
        + (
            ""
            if depth_bin.low is None or depth_bin.high is None
            else f" [{depth_bin.low:.3g}, {depth_bin.high:.3g}]"
        )
        + f" ({depth_bin.tenth:.3g} to {depth_bin.ninetieth:.3g}), {depth_bin.examples} examples"
        for depth_bin in depth.bins
    )
    return f"{depth.split}: {message}" if depth.split else message


def _bin_label(fewest: int, maximum: int) -> str:
    return str(fewest) if fewest == maximum else f"{fewest}-{maximum}"


def _paint_depths(axes: "Axes", depths: Sequence[BinnedDepth], quantity: str, top: float) -> None:
    # Markers differ too, since there are four colours and possibly more splits.
    looks = cycle(zip(COLOURS * len(MARKS), (mark for mark in MARKS for _ in COLOURS), strict=True))
    for depth, (colour, marker) in zip(depths, looks, strict=False):
        places = [(depth_bin.fewest + depth_bin.most) / 2 for depth_bin in depth.bins]
        means = [depth_bin.mean for depth_bin in depth.bins]
        lows, highs = (
            [depth_bin.tenth for depth_bin in depth.bins],
            [depth_bin.ninetieth for depth_bin in depth.bins],
        )
        axes.fill_between(places, lows, highs, color=colour, alpha=0.15, linewidth=0)
        lower_errors = [
            0.0 if depth_bin.low is None else depth_bin.mean - depth_bin.low for depth_bin in depth.bins
        ]
        upper_errors = [
            0.0 if depth_bin.high is None else depth_bin.high - depth_bin.mean for depth_bin in depth.bins
        ]
        axes.errorbar(
            places,
            means,
            yerr=[lower_errors, upper_errors],
            fmt=f"{marker}-",
            color=colour,
            capsize=2,
            markersize=3.5,
            label=shorten(depth.split, 24) or None,
        )
    axes.set_ylim(0, top)
    axes.locator_params(axis="x", integer=True, nbins=6)
    axes.set_xlabel(quantity)
    draw_key(axes, 0.0, KEY_COLUMNS, drop=0.46, handlelength=1.6, columnspacing=1.0, labelspacing=0.2)


def expert_panels(expert_uses: Sequence[ExpertUse]) -> Iterator[Panel]:
    """Yield two heat maps per mixture: by class of word, and by layer if layers were counted."""
    for index, expert_use in enumerate(expert_uses, start=1):
        title = f"{shorten(expert_use.arm, 20)}, {expert_use.mixture}, seed {expert_use.seed}"
        mixture_text = f"Experts of the {expert_use.mixture} of {expert_use.arm}"
        yield _shares_panel(
            f"experts-{index}",
            f"{mixture_text} by class of word",
            title,
            expert_use.classes,
            expert_use.shares,
        )
        if expert_use.layers:
            names = [f"layer {number}" for number, _ in expert_use.layers]
            yield _shares_panel(
                f"experts-{index}-layers", f"{mixture_text} by layer", title, names, expert_use.layer_shares
            )


def _shares_panel(name: str, quantity: str, title: str, rows: Sequence[str], shares: Shares) -> Panel:
    message = "; ".join(
        f"{row}: "
        + ", ".join(f"expert {place + 1} {share:.0%}" for place, share in _likeliest_items(arm_shares))
        for row, arm_shares in zip(rows, shares, strict=True)
    )
    return Panel(
        name,
        f"{quantity}, the three most chosen: {message}",
        partial(_paint_experts, rows=rows, shares=shares),
        title=title,
        height=0.36 + 0.66 + ROW * len(rows),
        left=1.0,
        bottom=0.66,
    )


def _likeliest_items(row: Sequence[float]) -> list[tuple[int, float]]:
    return sorted(enumerate(row), key=lambda item: -item[1])[:3]


def _paint_experts(axes: "Axes", rows: Sequence[str], shares: Shares) -> None:
    greatest = max((share for row in shares for share in row), default=0.0) or 1.0
    experts = max((len(row) for row in shares), default=1)
    boxes: dict[float, list[Box]] = {}
    for place, row in enumerate(shares):
        for expert, share in enumerate(row):
            ink = share / greatest
            step = round(ink * SHADES) / SHADES
            boxes.setdefault(step, []).append((expert, place, expert + 1, place + 0.94))
            if experts <= MAX_NUMBERED:
                colour = PAPER if ink > LIGHT_TEXT_FROM else INK
                words = f"{share:.0%}"
                axes.text(
                    expert + 0.5, place + 0.47, words, ha="center", va="center", fontsize=7, color=colour
                )
    for step, arm_boxes in boxes.items():
        fill_boxes(axes, arm_boxes, step)
    axes.grid(visible=False)
    axes.set_xlim(0, experts)
    axes.set_ylim(len(rows), 0)
    axes.set_yticks([place + 0.47 for place in range(len(rows))], [shorten(label, 13) for label in rows])
    step = 1 if experts <= MAX_NUMBERED else -(-experts // 12)
    experts_shown = range(0, experts, step)
    axes.set_xticks([expert + 0.5 for expert in experts_shown], [str(expert + 1) for expert in experts_shown])
    axes.set_xlabel(f"expert; the fullest cell is {greatest:.0%} of its row's choices", color=MUTED)
