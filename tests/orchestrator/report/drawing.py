"""What a figure of a report draws, as numbers: every panel is painted and its marks are read back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle

from orchestrator.report.figures.panels import all_panels
from orchestrator.report.figures.style import Panel
from tests.orchestrator.report.studies import Study

Point = tuple[float, float]
CORNERS = 5
"""Of a box that is closed."""


@dataclass(frozen=True)
class Whisker:
    """A mark with an interval, across or upwards."""

    at: Point
    low: float
    high: float


class Drawing:
    """The marks of a panel."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self._axes = Figure(figsize=(panel.width, panel.height)).add_subplot()
        panel.paint(self._axes)

    def points(self, marker: str, *, colour: str = "") -> list[Point]:
        """Of all marks of a kind, in the order in which they were drawn."""
        return [
            (float(x), float(y))
            for line in self._axes.lines
            if line.get_marker() == marker and colour in ("", to_hex(line.get_color()))
            for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
        ]

    def lines(self, style: str, colour: str) -> list[list[Point]]:
        """Lines of a style and a colour, those beside markers too."""
        return [
            [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]
            for line in self._axes.lines
            if line.get_linestyle() == style and to_hex(line.get_color()) == colour
        ]

    @cached_property
    def whiskers(self) -> list[Whisker | Point]:
        """Of every square with an interval what it shows; of one without, its place alone."""
        found: list[Whisker | Point] = []
        for container in self._axes.containers:
            if isinstance(container, ErrorbarContainer):
                mark, _, bars = container.lines
                ends = [segment for bar in bars for segment in bar.get_segments()]
                for place, at in enumerate(zip(mark.get_xdata(), mark.get_ydata(), strict=True)):
                    found.append(_whisker(at, ends[place], container.has_xerr) if ends else at)
        return found

    def bands(self) -> list[dict[float, Point]]:
        """Of every filled band its lower and upper edge, by where it is across."""
        return [
            _edges(path.vertices)
            for collection in self._axes.collections
            if isinstance(collection, PolyCollection)
            for path in collection.get_paths()
        ]

    def upright_bands(self) -> list[dict[float, Point]]:
        """Of every filled band its left and right edge, by where it is upwards."""
        return [
            _edges((y, x) for x, y in path.vertices)
            for collection in self._axes.collections
            if isinstance(collection, PolyCollection)
            for path in collection.get_paths()
        ]

    def bars(self) -> list[float]:
        """Widths of lying bars, from the top."""
        return [
            patche.get_width()
            for patche in self._axes.patches
            if isinstance(patche, Rectangle) and abs(patche.get_height() - 0.3) < 1e-9
        ]

    def cells(self) -> dict[tuple[int, int], float]:
        """Of a heat map how full each cell is that is not empty, by column and row."""
        found: dict[tuple[int, int], float] = {}
        for patche in self._axes.patches:
            if isinstance(patche, PathPatch):
                corners = patche.get_path().vertices
                for start in range(0, len(corners), CORNERS):
                    across, up = zip(*corners[start : start + CORNERS], strict=True)
                    found[round(min(across)), round(min(up))] = float(patche.get_alpha() or 0)
        return found

    def ink(self, at: Point) -> float:
        """How full the areas are that a point lies in."""
        return sum(
            float(patche.get_alpha() or 0)
            for patche in self._axes.patches
            if isinstance(patche, PathPatch) and patche.get_path().contains_point(at)
        )

    def texts(self) -> dict[str, Point]:
        """What is written where; of a text that is there twice the last."""
        return dict(self.places())

    def places(self) -> list[tuple[str, Point]]:
        """All that is written, and where."""
        return [(text.get_text(), text.get_position()) for text in self._axes.texts]

    def key(self) -> list[str]:
        """What the key says of marks."""
        return [get_text.get_text() for get_text in self._axes.get_legend().get_texts()]

    @property
    def limits(self) -> Point:
        """Ends of the axis across."""
        low, high = self._axes.get_xlim()
        return float(low), float(high)

    def rows(self) -> list[str]:
        """What the rows are called."""
        return [get_yticklabel.get_text() for get_yticklabel in self._axes.get_yticklabels()]


def _whisker(at: Point, ends: Sequence[Point], across: bool) -> Whisker:
    values = [end[0 if across else 1] for end in ends]
    return Whisker((float(at[0]), float(at[1])), min(values), max(values))


def _edges(vertices: Iterable[Point]) -> dict[float, Point]:
    found: dict[float, list[float]] = {}
    for x, y in vertices:
        found.setdefault(float(x), []).append(float(y))
    return {x: (min(values), max(values)) for x, values in found.items()}


def drawings(made: Study) -> dict[str, Drawing]:
    """All figures of a study, by name."""
    return {all_panel.name: Drawing(all_panel) for all_panel in all_panels(made.report(), made.details())}
