"""Draw arms as numbered marks; numbers of overlapping marks are written above them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.report.figures.style import BLUE, INK, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARK, LETTERS, LETTER, LINE = 11.0, 7.5, 5.0, 9.0
"""Sizes in points: diameter of a mark, font size, width of a letter, height of a line of letters."""
MARGIN = 0.12
"""Margin around the outermost marks, as a part of the range."""


@dataclass(frozen=True)
class _Label:
    """Marks too close for a number in each, in points from the lower left corner of the axes."""

    numbers: tuple[int, ...]
    marks: tuple[tuple[float, float], ...]

    @property
    def words(self) -> str:
        return format_ranges(self.numbers)

    def words_at(self, width: float) -> tuple[float, float]:
        """Return the centre of the words: above the highest mark, inside axes of this width."""
        across = [x for x, _ in self.marks]
        x, y = (min(across) + max(across)) / 2, max(y for _, y in self.marks) + (MARK + LINE) / 2
        half = LETTER * len(self.words) / 2
        return max(half, min(width - half, x)) if 2 * half < width else width / 2, y

    def boxes(self, width: float) -> list[tuple[float, float, float, float]]:
        """Return the left, low, right and high ends of all marks and words."""
        found = [(x - MARK / 2, y - MARK / 2, x + MARK / 2, y + MARK / 2) for x, y in self.marks]
        if len(self.marks) > 1:
            half, (x, y) = LETTER * len(self.words) / 2, self.words_at(width)
            found.append((x - half, y - LINE / 2, x + half, y + LINE / 2))
        return found


def format_ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers in few letters, e.g. `1, 3-6`."""
    runs: list[list[int]] = []
    for each in sorted(numbers):
        if runs and each == runs[-1][-1] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def paint_numbers(axes: "Axes", places: Mapping[int, tuple[float, float]]) -> None:
    """Draw a mark at each place in data coordinates, with its number in or above it."""
    across, up = zip(*places.values(), strict=True)
    axes.plot(across, up, "o", markersize=MARK, markerfacecolor=PAPER, markeredgecolor=BLUE, linestyle="")
    axes.margins(MARGIN)
    axes.autoscale_view()
    figure = axes.figure.get_figure(root=True)
    scale = 72 / figure.dpi
    corner = axes.transAxes.transform((0.0, 0.0))
    width = float(axes.transAxes.transform((1.0, 0.0))[0] - corner[0]) * scale
    groups = []
    for number, place in places.items():
        x, y = (axes.transData.transform(place) - corner) * scale
        groups.append(_Label((number,), ((float(x), float(y)),)))
    data = axes.transData.inverted()
    for each in _merge_overlapping(groups, width):
        at = places[each.numbers[0]]
        if len(each.numbers) > 1:
            x, y = each.words_at(width)
            across_data, up_data = data.transform((x / scale + corner[0], y / scale + corner[1]))
            at = float(across_data), float(up_data)
        axes.text(*at, each.words, ha="center", va="center_baseline", fontsize=LETTERS, color=INK)


def _merge_overlapping(groups: list[_Label], width: float) -> list[_Label]:
    """Merge labels that overlap until none do."""
    for at, one in enumerate(groups):
        for other in groups[at + 1 :]:
            if any(_overlap(a, b) for a in one.boxes(width) for b in other.boxes(width)):
                joined = _Label(one.numbers + other.numbers, one.marks + other.marks)
                return _merge_overlapping(
                    [joined, *(each for each in groups if each not in (one, other))], width
                )
    return groups


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
