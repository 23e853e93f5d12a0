"""Print messages: one console for answers, one for errors, and JSON for scripts.

All output is printed as plain text: control characters are escaped, markup is not interpreted, and passwords
in URLs are masked.
"""

import json
import math
import re
import sys
import threading
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from orchestrator.files.redact import redact
from search_spaces.wording import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.measure import Measurement
    from rich.segment import Segment

_HAS_LIVE_DISPLAY = threading.Event()
PLAIN_WIDTH = 160
"""Columns of output to a log or a pipe, which has no width."""
_NAME_PART = re.compile(r"[^-_/.,=\[\] ]*[-_/.,=\[\] ]*")


@cache
def out() -> "Console":
    """Return the console for standard output, with `PLAIN_WIDTH` columns if it is not a terminal."""
    return _console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


@cache
def err() -> "Console":
    """Return the console for standard error, with `PLAIN_WIDTH` columns if it is not a terminal."""
    return _console(width=None if sys.stderr.isatty() else PLAIN_WIDTH, stderr=True)


def print_line(text: str) -> None:
    """Print a line of plain text to standard output, without wrapping."""
    out().print(escape_unprintable(redact(text)), soft_wrap=True)


def print_error(text: str) -> None:
    """Print an error or a warning, above a live display if both are on a terminal."""
    terminal = sys.stderr.isatty()
    console = out() if terminal and _HAS_LIVE_DISPLAY.is_set() else err()
    console.print(escape_unprintable(redact(text)), soft_wrap=True, style="red" if terminal else None)


def mark_live_display(*, begins: bool) -> None:
    """Record that a live display on standard output begins or ends."""
    (_HAS_LIVE_DISPLAY.set if begins else _HAS_LIVE_DISPLAY.clear)()


def emit_json(value: Any) -> None:
    """Print a value as JSON for scripts; NaN and infinities, which JSON lacks, become strings."""
    sys.stdout.write(json.dumps(_without_infinities(value), indent=2, sort_keys=True, allow_nan=False) + "\n")


def _without_infinities(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_infinities(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class VisibleText:
    """Renderable whose texts contain no control characters, except those that Rich adds."""

    def __init__(self, inner: "RenderableType") -> None:
        self._inner = inner

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[Segment]":
        """Render with escaped control characters; the name is fixed by Rich."""
        from rich.segment import Segment

        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(escape_unprintable(segment.text), segment.style)


def _console(*, width: int | None, stderr: bool = False) -> "Console":
    from rich.console import Console, ConsoleRenderable, RenderHook

    class EverythingVisible(RenderHook):
        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            return [VisibleText(renderable) for renderable in renderables]

    console = Console(width=width, stderr=stderr, highlight=False, markup=False, emoji=False)
    console.push_render_hook(EverythingVisible())
    return console


class BreakableName:
    """Name of an arm, displayed in as many lines as its column needs.

    Names have no spaces, so a column that is too narrow breaks them at punctuation.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def lines(self, width: int) -> "Iterator[str]":
        """Yield lines of at most `width` characters; a longer part is split."""
        line = ""
        for part in _NAME_PART.findall(self._text):
            if line and len(line) + len(part) > width:
                yield line
                line = ""
            line += part
            while len(line) > width:
                yield line[:width]
                line = line[width:]
        if line:
            yield line

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """Render the lines of the name; the method name is fixed by Rich."""
        from rich.text import Text

        yield Text("\n".join(self.lines(max(1, options.max_width))))

    def __rich_measure__(self, console: "Console", options: "ConsoleOptions") -> "Measurement":
        """Return the minimum and maximum width; the method name is fixed by Rich."""
        from rich.measure import Measurement

        longest = max(map(len, _NAME_PART.findall(self._text)))
        return Measurement(min(longest, options.max_width), min(len(self._text), options.max_width))
