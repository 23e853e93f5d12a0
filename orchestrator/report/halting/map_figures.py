"""Draw halting maps: words from left to right, layers upwards, in strips as wide as a phone."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from orchestrator.report.figures.style import INK, MUTED, Box, Panel, fill_boxes, shorten
from orchestrator.report.halting.halting_maps import ArmMaps, MappedExample

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PER_STRIP, STRIPS = 24, 2
"""Words per strip, and maximum number of strips per example; of a pair, one for each sentence."""
LETTERS = 8
"""Maximum number of letters of a word."""
SHADES = ((60, 1.0), (25, 0.62), (5, 0.38), (0, 0.2))
"""Lower bounds of the open percentage with their opacities, which also differ in grey."""
LAYER, NAMES, ABOVE = 0.1, 0.6, 0.12
"""Height in inches of a layer, of the words below a strip, and of the space between strips."""
MIN_LAYERS = 2
"""Minimum number of layers that a strip has space for."""
LEFT, BOTTOM = 0.34, 0.24

Strip = tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]
"""Words, and the percentages of their layers."""


def map_panels(maps: ArmMaps, arm_index: int, max_examples: int) -> Iterator[Panel]:
    """Yield panels of the first `max_examples` examples; `arm_index` counts the arms that have maps."""
    for index, example in enumerate(maps.examples[:max_examples], start=1):
        strips = [*_strips(example)]
        layers = max([MIN_LAYERS, *(len(row) for _, rows in strips for row in rows)])
        high = LAYER * layers
        yield Panel(
            f"map-{arm_index}-{index}",
            _example_text(maps.arm, example),
            partial(_paint, strips=strips, layers=layers, note=_depth_note(example)),
            title=_title(example),
            height=0.36 + BOTTOM + len(strips) * (high + NAMES + ABOVE),
            left=LEFT,
            bottom=BOTTOM,
        )


def _title(example: MappedExample) -> str:
    if example.target is not None:
        right = example.hits == example.counts
        message = f"{example.answer}, right" if right else f"{example.answer}, right is {example.target}"
        return f"example {example.number}: {message}"
    return f"example {example.number}: {example.hits} of {example.counts} answers right"


def _example_text(arm: str, example: MappedExample) -> str:
    words = "; ".join(
        f"{word} {depth}"
        for part in example.parts
        for word, depth in zip(part.words, part.depths, strict=True)
    )
    return (
        f"Halting of {arm} on example {example.number} of {example.split}, depth {example.depth:.3g}: layers "
        f"kept of each word: {words}"
    )


def _depth_note(example: MappedExample) -> str:
    sizes = [(min(_max_words(example), len(part.words)), part.length) for part in example.parts]
    cut = " and ".join(f"{words} of {length} words" for words, length in sizes if words < length)
    return f"depth {example.depth:.3g}" + (f"; the first {cut}" if cut else "")


def _max_words(example: MappedExample) -> int:
    """Return the maximum number of words to plot of each part."""
    return PER_STRIP * max(1, STRIPS // max(1, len(example.parts)))


def _strips(example: MappedExample) -> Iterator[Strip]:
    for part in example.parts:
        words, running = part.words[: _max_words(example)], part.running[: _max_words(example)]
        for start in range(0, len(words), PER_STRIP):
            yield words[start : start + PER_STRIP], running[start : start + PER_STRIP]


def _paint(axes: "Axes", strips: Sequence[Strip], layers: int, note: str) -> None:
    """Draw all strips; the vertical unit is one layer."""
    unit = 1 / LAYER
    tall = layers + (NAMES + ABOVE) * unit
    for number, (words, rows) in enumerate(strips):
        floor = (len(strips) - number) * tall - layers - ABOVE * unit
        _paint_shades(axes, rows, floor)
        for column, word in enumerate(words):
            place, text = (column + 0.5, floor - 0.05 * unit), shorten(word, LETTERS)
            axes.text(*place, text, rotation=90, ha="center", va="top", fontsize=7, color=INK)
        for layer in {1, layers}:
            axes.text(-0.4, floor + layer - 0.5, str(layer), ha="right", va="center", fontsize=7, color=MUTED)
        axes.plot([0, len(words)], [floor, floor], color=MUTED, linewidth=0.6)
    axes.set_xlim(0, PER_STRIP)
    axes.set_ylim(0, tall * len(strips))
    axes.set_axis_off()
    axes.text(0, -0.04 * unit, note, va="top", fontsize=7.5, color=MUTED)


def _paint_shades(axes: "Axes", rows: Sequence[Sequence[int]], floor: float) -> None:
    """Draw each shade as one path and merge neighbours of one shade, which keeps a page small."""
    layers = max((len(row) for row in rows), default=0)
    for least, ink in SHADES:
        boxes: list[Box] = []
        for layer in range(layers):
            shades = [_shade_bound(row[layer]) if layer < len(row) else None for row in rows]
            column, low = 0, floor + layer + 0.05
            for depth, run in groupby(shades):
                wide = len([*run])
                if depth == least:
                    boxes.append((column, low, column + wide, low + 0.9))
                column += wide
        fill_boxes(axes, boxes, ink)


def _shade_bound(percent: int) -> int | None:
    """Return the lower bound of the range of a percentage; None for a word that had halted."""
    return next((least for least, _ in SHADES if percent >= least), None)
