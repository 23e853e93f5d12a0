"""Depth by number of operators, and experts by class of word, as figures."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.report.style import BLUE, INK, MUTED, PAPER, SMALL, Panel, shortened
from orchestrator.report.tallies import ExpertUse, OperatorDepth

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.3
"""Inches of a class."""
NUMBERED = 8
"""Experts up to which shares are written into their cells."""
LIGHT = 0.55
"""Part of the greatest share from which on a number is written light on dark."""


def operator_panels(depths: Sequence[OperatorDepth]) -> Iterator[Panel]:
    """Of every arm that halts."""
    own = [each for each in depths if each.moves]
    top = max((one.high for each in own for one in each.bins), default=1.0) * 1.08
    for index, each in enumerate(own, start=1):
        told = "; ".join(
            f"{_words(one.fewest, one.most)} operators {one.mean:.3g} ({one.low:.3g} to {one.high:.3g}), "
            f"{one.examples} examples"
            for one in each.bins
        )
        yield Panel(
            f"operators-{index}",
            f"Depth of {each.arm} by number of operators: {told}",
            partial(_paint_depth, depth=each, top=top),
            title=each.arm,
            width=SMALL,
            height=2.2,
        )


def _words(fewest: int, most: int) -> str:
    return str(fewest) if fewest == most else f"{fewest}-{most}"


def _paint_depth(axes: "Axes", depth: OperatorDepth, top: float) -> None:
    places = [(each.fewest + each.most) / 2 for each in depth.bins]
    means = [each.mean for each in depth.bins]
    below = [each.mean - min(each.mean, each.low) for each in depth.bins]
    above = [max(each.mean, each.high) - each.mean for each in depth.bins]
    axes.errorbar(places, means, yerr=[below, above], fmt="o-", color=BLUE, capsize=2, markersize=3.5)
    axes.set_ylim(0, top)
    axes.locator_params(axis="x", integer=True, nbins=6)
    axes.set_xlabel("operators")


def expert_panels(uses: Sequence[ExpertUse]) -> Iterator[Panel]:
    """A heat map a mixture."""
    for index, each in enumerate(uses, start=1):
        told = "; ".join(
            f"{kind}: " + ", ".join(f"expert {place + 1} {share:.0%}" for place, share in _likeliest(row))
            for kind, row in zip(each.classes, each.shares, strict=True)
        )
        yield Panel(
            f"experts-{index}",
            f"Experts of the {each.mixture} of {each.arm} by class of word, the three most chosen: {told}",
            partial(_paint_experts, use=each),
            title=f"{shortened(each.arm, 20)}, {each.mixture}, seed {each.seed}",
            height=0.36 + 0.66 + ROW * len(each.classes),
            left=1.0,
            bottom=0.66,
        )


def _likeliest(row: Sequence[float]) -> list[tuple[int, float]]:
    return sorted(enumerate(row), key=lambda each: -each[1])[:3]


def _paint_experts(axes: "Axes", use: ExpertUse) -> None:
    from matplotlib.patches import Rectangle

    greatest = max((share for row in use.shares for share in row), default=0.0) or 1.0
    experts = max((len(row) for row in use.shares), default=1)
    for place, row in enumerate(use.shares):
        for expert, share in enumerate(row):
            ink = share / greatest
            axes.add_patch(Rectangle((expert, place), 1, 0.94, facecolor=BLUE, alpha=ink, linewidth=0))
            if experts <= NUMBERED:
                colour = PAPER if ink > LIGHT else INK
                words = f"{share:.0%}"
                axes.text(
                    expert + 0.5, place + 0.47, words, ha="center", va="center", fontsize=7, color=colour
                )
    axes.grid(visible=False)
    axes.set_xlim(0, experts)
    axes.set_ylim(len(use.classes), 0)
    axes.set_yticks(
        [place + 0.47 for place in range(len(use.classes))], [shortened(each, 13) for each in use.classes]
    )
    step = 1 if experts <= NUMBERED else -(-experts // 12)
    shown = range(0, experts, step)
    axes.set_xticks([expert + 0.5 for expert in shown], [str(expert + 1) for expert in shown])
    axes.set_xlabel(f"expert; the fullest cell is {greatest:.0%} of a class's choices", color=MUTED)
