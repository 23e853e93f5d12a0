"""What a page is made of: sections of parts, with their pictures, facts and tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.report.figures.style import Panel, inlined, titled
from orchestrator.report.writers.tables import Grid
from search_spaces.wording import one_line, visible

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Picture:
    """A figure as the page has it."""

    name: str
    picture: "Markup"
    caption: str = ""
    """The title, where the picture has no room for all of it."""


@dataclass(frozen=True)
class Part:
    """Figures, facts and tables that belong together."""

    title: str = ""
    texts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    """What must not be missed."""
    panels: tuple[Picture, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    grids: tuple[Grid, ...] = ()
    folded: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names and lines of long texts, which open when they are asked for."""

    @property
    def shown(self) -> bool:
        """Whether there is more than a title and words that explain."""
        return bool(self.panels or self.facts or self.grids)


@dataclass(frozen=True)
class Card:
    """One arm."""

    title: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PageSection:
    """A heading and what is beneath it."""

    name: str
    title: str
    texts: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    cards: tuple[Card, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.cards or any(each.shown for each in self.parts))


def pictures(panels: Iterable[Panel]) -> tuple[Picture, ...]:
    """Drawn, as elements of a page."""
    from markupsafe import Markup

    # Made by us: what others named is escaped by the library that draws, and in the label by `inlined`.
    return tuple(
        Picture(each.name, Markup(inlined(each)), _caption(each))  # noqa: S704  # nosec B704
        for each in panels
    )


def _caption(panel: Panel) -> str:
    whole = visible(one_line(panel.title))
    return "" if titled(panel) == whole else whole
