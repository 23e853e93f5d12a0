"""Read the marks of a drawn report figure as numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from orchestrator.report.figures.panels import all_panels
from orchestrator.report.figures.style import Panel
from tests.orchestrator.report.studies import Study

Point = tuple[float, float]


@dataclass(frozen=True)
class Whisker:
    """A mark with a horizontal or vertical interval."""

    position: Point
    low: float
    high: float


class Drawing:
    """The marks of a drawn panel."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self._axes = Figure(figsize=(panel.width, panel.height)).add_subplot()
        panel.paint(self._axes)

    def points(self, marker: str, *, colour: str = "") -> list[Point]:
        """Return the positions of all marks of a kind in drawing order."""
        return [
            (float(x), float(y))
            for line in self._axes.lines
            if line.get_marker() == marker and colour in ("", to_hex(line.get_color()))
            for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
        ]

    def lines(self, style: str, colour: str) -> list[list[Point]]:
        """Return the lines of a style and a colour, including lines with markers."""
        return [
            [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]
            for line in self._axes.lines
            if line.get_linestyle() == style and to_hex(line.get_color()) == colour
        ]

    @cached_property
    def whiskers(self) -> list[Whisker | Point]:
        """Return every square with its interval, or only its position without an interval."""
        marks: list[Whisker | Point] = []
        for container in self._axes.containers:
            if isinstance(container, ErrorbarContainer):
                mark, _, bars = container.lines
                ends = [segment for bar in bars for segment in bar.get_segments()]
                for index, position in enumerate(zip(mark.get_xdata(), mark.get_ydata(), strict=True)):
                    marks.append(_whisker(position, ends[index], container.has_xerr) if ends else position)
        return marks

    def bands(self) -> list[dict[float, Point]]:
        """Return the lower and upper edge of every filled band by x."""
        return [
            _edges(path.vertices)
            for collection in self._axes.collections
            if isinstance(collection, PolyCollection)
            for path in collection.get_paths()
        ]

    def texts(self) -> dict[str, Point]:
        """Return the position of each text; the last one counts if a text appears twice."""
        return {text.get_text(): text.get_position() for text in self._axes.texts}


def _whisker(position: Point, ends: Sequence[Point], is_horizontal: bool) -> Whisker:
    values = [end[0 if is_horizontal else 1] for end in ends]
    return Whisker((float(position[0]), float(position[1])), min(values), max(values))


def _edges(vertices: Iterable[Point]) -> dict[float, Point]:
    values_by_x: dict[float, list[float]] = {}
    for x, y in vertices:
        values_by_x.setdefault(float(x), []).append(float(y))
    return {x: (min(values), max(values)) for x, values in values_by_x.items()}


def drawings(study: Study) -> dict[str, Drawing]:
    """Return all figures of a study by name."""
    return {panel.name: Drawing(panel) for panel in all_panels(study.report(), study.details())}
