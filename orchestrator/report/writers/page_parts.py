"""Define the parts of a page: sections, with their pictures, facts and tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.report.figures.style import Panel, inline_svg, short_title
from orchestrator.report.results.types import TextTable
from search_spaces.wording import escape_unprintable, one_line

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class PageFigure:
    """A figure as an element of the page."""

    name: str
    picture: "Markup"
    caption: str = ""
    """The full title, if the picture has no space for it."""


@dataclass(frozen=True)
class PagePart:
    """Figures, facts and tables that belong together."""

    title: str = ""
    texts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    """Important remarks, which are highlighted."""
    panels: tuple[PageFigure, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    grids: tuple[TextTable, ...] = ()
    folded: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names and lines of long texts, which are folded."""

    @property
    def has_content(self) -> bool:
        """Return whether the part has more than a title and explanations."""
        return bool(self.panels or self.facts or self.grids)


@dataclass(frozen=True)
class ArmCard:
    """Title and facts of one arm."""

    title: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PageSection:
    """A heading and the content below it."""

    name: str
    title: str
    texts: tuple[str, ...] = ()
    parts: tuple[PagePart, ...] = ()
    cards: tuple[ArmCard, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether the section has no content."""
        return not (self.cards or any(part.has_content for part in self.parts))


def draw_pictures(panels: Iterable[Panel]) -> tuple[PageFigure, ...]:
    """Return the panels drawn as elements of a page."""
    from markupsafe import Markup

    # The markup is safe: matplotlib escapes user text in figures, and `inline_svg` escapes the label.
    return tuple(
        PageFigure(panel.name, Markup(inline_svg(panel)), _full_title(panel))  # noqa: S704  # nosec B704
        for panel in panels
    )


def _full_title(panel: Panel) -> str:
    full_title = escape_unprintable(one_line(panel.title))
    return "" if short_title(panel) == full_title else full_title
