"""Draw halting maps: words from left to right, layers upwards, in strips as wide as a phone."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from orchestrator.report.figures.style import INK, MUTED, BoxEnds, Panel, fill_boxes, shorten
from orchestrator.report.halting.halting_maps import ArmMaps, MappedExample

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WORDS_PER_STRIP, MAX_STRIPS = 24, 2
"""Words per strip, and maximum number of strips per example; of a pair, one for each sentence."""
MAX_WORD_LETTERS = 8
"""Maximum number of letters of a word."""
SHADES = ((60, 1.0), (25, 0.62), (5, 0.38), (0, 0.2))
"""Lower bounds of the open percentage with their opacities, which also differ in grey."""
LAYER_INCHES, WORDS_INCHES, STRIP_GAP_INCHES = 0.1, 0.6, 0.12
"""Height in inches of a layer, of the words below a strip, and of the space between strips."""
MIN_LAYERS = 2
"""Minimum number of layers that a strip has space for."""
LEFT_INCHES, BOTTOM_INCHES = 0.34, 0.24

Strip = tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]
"""Words, and the percentages of their layers."""


def map_panels(maps: ArmMaps, arm_index: int, max_examples: int) -> Iterator[Panel]:
    """Yield panels of the first `max_examples` examples; `arm_index` counts the arms that have maps."""
    for index, example in enumerate(maps.examples[:max_examples], start=1):
        strips = [*_strips(example)]
        layers = max([MIN_LAYERS, *(len(row) for _, rows in strips for row in rows)])
        high = LAYER_INCHES * layers
        yield Panel(
            f"map-{arm_index}-{index}",
            _example_text(maps.arm, example),
            partial(_paint_strips, strips=strips, layers=layers, note=_depth_note(example)),
            title=_example_title(example),
            height=0.36 + BOTTOM_INCHES + len(strips) * (high + WORDS_INCHES + STRIP_GAP_INCHES),
            left=LEFT_INCHES,
            bottom=BOTTOM_INCHES,
        )


def _example_title(example: MappedExample) -> str:
    if example.target is not None:
        is_right = example.hits == example.counts
        message = f"{example.answer}, right" if is_right else f"{example.answer}, right is {example.target}"
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
    cut_text = " and ".join(f"{words} of {length} words" for words, length in sizes if words < length)
    return f"depth {example.depth:.3g}" + (f"; the first {cut_text}" if cut_text else "")


def _max_words(example: MappedExample) -> int:
    """Return the maximum number of words to plot of each part."""
    return WORDS_PER_STRIP * max(1, MAX_STRIPS // max(1, len(example.parts)))


def _strips(example: MappedExample) -> Iterator[Strip]:
    for part in example.parts:
        words, running = part.words[: _max_words(example)], part.running[: _max_words(example)]
        for start in range(0, len(words), WORDS_PER_STRIP):
            yield words[start : start + WORDS_PER_STRIP], running[start : start + WORDS_PER_STRIP]


def _paint_strips(axes: "Axes", strips: Sequence[Strip], layers: int, note: str) -> None:
    """Draw all strips; the vertical unit is one layer."""
    layers_per_inch = 1 / LAYER_INCHES
    strip_height = layers + (WORDS_INCHES + STRIP_GAP_INCHES) * layers_per_inch
    for number, (words, rows) in enumerate(strips):
        floor = (len(strips) - number) * strip_height - layers - STRIP_GAP_INCHES * layers_per_inch
        _paint_shades(axes, rows, floor)
        for column, word in enumerate(words):
            place, text = (column + 0.5, floor - 0.05 * layers_per_inch), shorten(word, MAX_WORD_LETTERS)
            axes.text(*place, text, rotation=90, ha="center", va="top", fontsize=7, color=INK)
        for layer in {1, layers}:
            axes.text(-0.4, floor + layer - 0.5, str(layer), ha="right", va="center", fontsize=7, color=MUTED)
        axes.plot([0, len(words)], [floor, floor], color=MUTED, linewidth=0.6)
    axes.set_xlim(0, WORDS_PER_STRIP)
    axes.set_ylim(0, strip_height * len(strips))
    axes.set_axis_off()
    axes.text(0, -0.04 * layers_per_inch, note, va="top", fontsize=7.5, color=MUTED)


def _paint_shades(axes: "Axes", rows: Sequence[Sequence[int]], floor: float) -> None:
    """Draw each shade as one path and merge neighbours of one shade, which keeps a page small."""
    layers = max((len(row) for row in rows), default=0)
    for least, ink in SHADES:
        boxes: list[BoxEnds] = []
        for layer in range(layers):
            shades = [_shade_bound(row[layer]) if layer < len(row) else None for row in rows]
            column, low = 0, floor + layer + 0.05
            for depth, run in groupby(shades):
                run_length = len([*run])
                if depth == least:
                    boxes.append((column, low, column + run_length, low + 0.9))
                column += run_length
        fill_boxes(axes, boxes, ink)


def _shade_bound(percent: int) -> int | None:
    """Return the lower bound of the range of a percentage; None for a word that had halted."""
    return next((least for least, _ in SHADES if percent >= least), None)
