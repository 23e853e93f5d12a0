"""Define the style of all figures, and render them to reproducible bytes.

Colours are those of Okabe and Ito (2008), which colour-blind readers can distinguish. In a page each colour
is a custom property of the style sheet (`var(--figure-blue)`), so that the figure is legible on light and
dark.
"""

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal

from search_spaces.wording import escape_unprintable, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FileFormat = Literal["svg", "pdf", "png"]

INK, MUTED, GRID, PAPER = "#1a1a1e", "#66666e", "#d8d8dd", "#fffffe"
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
COLOUR_NAMES: Final[Mapping[str, str]] = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    PAPER: "paper",
    BLUE: "blue",
    ORANGE: "orange",
    GREEN: "green",
    PURPLE: "purple",
}
"""Name of each colour in the style sheet of the page."""
PANEL_INCHES = 4.4
"""Width of a panel in inches: that of a phone, so that its letters are as large as the text around it."""
SMALL_PANEL_INCHES = 2.9
"""Width in inches of panels that exist once per arm."""
RIGHT, TOP = 0.16, 0.36
"""Space in inches to the right of axes without texts there, and above axes."""
TITLE_LETTER_INCHES = 0.09
"""Width of one letter of a title in inches."""
DPI = 150
MATPLOTLIB_SETTINGS: Final[Mapping[str, Any]] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "text.parse_math": False,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.0,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


BoxEnds = tuple[float, float, float, float]
"""Left, low, right and high end."""


@dataclass(frozen=True)
class Panel:
    """A figure: its name, description and paint function."""

    name: str
    """File name without its suffix."""
    label: str
    """Description of the figure for readers who cannot see it."""
    paint: Callable[["Axes"], None]
    title: str = ""
    height: float = 2.3
    """Height in inches."""
    width: float = PANEL_INCHES
    left: float = 0.62
    """Space in inches to the left of the axes, for labels."""
    bottom: float = 0.46
    right: float = RIGHT


_MATPLOTLIB_LOCK = Lock()
"""Held while the settings of matplotlib, which all threads share, are changed."""


def shorten(text: str, letters: int) -> str:
    """Return the text with at most `letters` letters; the middle is cut, since ends distinguish names."""
    text = escape_unprintable(one_line(text))
    if len(text) <= letters:
        return text
    head_length = max(1, (letters - 1) // 2)
    return f"{text[:head_length]}…{text[len(text) - (letters - 1 - head_length) :]}"


def short_title(panel: Panel) -> str:
    """Return the title of a panel, shortened to fit above the figure."""
    return shorten(panel.title, int((panel.width - 0.2) / TITLE_LETTER_INCHES))


def render_panel(panel: Panel, kind: FileFormat) -> bytes:
    """Return the figure as a file. The same panel always gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {**MATPLOTLIB_SETTINGS, "svg.hashsalt": panel.name}
    with _MATPLOTLIB_LOCK, mpl.rc_context(settings):
        figure = Figure(figsize=(panel.width, panel.height))
        FigureCanvasAgg(figure)
        # Fixed margins, since automatic ones are slow and a report may have a hundred panels.
        figure.subplots_adjust(
            left=panel.left / panel.width,
            right=1 - panel.right / panel.width,
            bottom=panel.bottom / panel.height,
            top=1 - TOP / panel.height,
        )
        panel.paint(figure.add_subplot())
        figure.text(0.1 / panel.width, 1 - 0.1 / panel.height, short_title(panel), va="top", weight="bold")
        buffer = io.BytesIO()
        date_keys = {"svg": "Date", "pdf": "CreationDate"}
        metadata = {date_keys[kind]: None} if kind in date_keys else None
        with warnings.catch_warnings():
            # The font may lack letters that the reader of the page has.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata, transparent=kind != "png")
    return buffer.getvalue()


_SVG_PREAMBLE = re.compile(r"^.*?(?=<svg)|<metadata>.*?</metadata>|<style[^>]*>.*?</style>", re.DOTALL)
_LINE_BREAKS = re.compile(r"\s*\n\s*")
_SIZE_ATTRIBUTES = re.compile(r' width="[\d.]+pt" height="[\d.]+pt"')
_ID_ATTRIBUTE = re.compile(r' id="([^"]*)"')
_ID_REFERENCE = re.compile(r'(url\(#|href="#)([^")]*)')
_COLOUR_CODE = re.compile("|".join(COLOUR_NAMES), re.IGNORECASE)
_FONT_STYLE = "font-family: 'DejaVu Sans'; "


def inline_svg(panel: Panel) -> str:
    """Return the figure as an SVG element of a page, with colours by name, the page's font and unique ids."""
    text = _SVG_PREAMBLE.sub("", render_panel(panel, "svg").decode("utf-8"))
    text = _LINE_BREAKS.sub(" ", text).replace(_FONT_STYLE, "")
    text = _COLOUR_CODE.sub(lambda match: f"var(--figure-{COLOUR_NAMES[match[0].lower()]})", text)
    referenced_ids = {name for _, name in _ID_REFERENCE.findall(text)}
    text = _ID_ATTRIBUTE.sub(
        lambda match: f' id="{panel.name}-{match[1]}"' if match[1] in referenced_ids else "", text
    )
    text = _ID_REFERENCE.sub(lambda match: f"{match[1]}{panel.name}-{match[2]}", text)
    # A point is a 72nd of an inch, and an inch has 96 pixels of a page.
    label = escape(escape_unprintable(one_line(panel.label)))
    size = f' width="{panel.width * 96:.0f}" height="{panel.height * 96:.0f}"'
    return _SIZE_ATTRIBUTES.sub(lambda _: f'{size} role="img" aria-label="{label}"', text, count=1)


def fill_boxes(axes: "Axes", boxes: Sequence[BoxEnds], ink: float) -> None:
    """Draw boxes of one shade as one path, which keeps a page small.

    Args:
        axes: Axes to draw on.
        boxes: Boxes in data coordinates.
        ink: Opacity from 0 (invisible) to 1.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if not boxes or not ink:
        return
    kinds = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    paths = [
        Path([(left, low), (right, low), (right, high), (left, high), (left, low)], kinds)
        for left, low, right, high in boxes
    ]
    path = Path.make_compound_path(*paths)
    axes.add_patch(PathPatch(path, facecolor=BLUE, linewidth=0, alpha=ink))


def draw_key(axes: "Axes", x: float, columns: int, offset_inches: float = 0.34, **style: Any) -> None:
    """Draw a key with each mark once, `offset_inches` inches below the axis, from `x` of its width on."""
    handles, labels = axes.get_legend_handles_labels()
    handles_by_label = dict(zip(labels, handles, strict=True))
    if not handles_by_label:
        return
    height = axes.get_position().height * axes.figure.get_figure(root=True).get_figheight()
    style |= {"loc": "upper left", "bbox_to_anchor": (x, -offset_inches / height), "ncols": columns}
    axes.legend(list(handles_by_label.values()), list(handles_by_label), borderaxespad=0, **style)
