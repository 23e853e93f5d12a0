"""Where people are spoken to: one console for answers, one for errors, JSON for scripts.

Whatever is printed is shown as text: control characters as escapes, nothing read as markup, no password of
a URL.
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
from search_spaces.wording import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.measure import Measurement
    from rich.segment import Segment

_DRAWN = threading.Event()
PLAIN_WIDTH = 160
"""Columns when nobody is watching: a log or a pipe has no width of its own."""
_PART = re.compile(r"[^-_/.,=\[\] ]*[-_/.,=\[\] ]*")


@cache
def out() -> "Console":
    """Standard output; plain and wide when it is not a terminal."""
    return _console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


@cache
def err() -> "Console":
    """Standard error."""
    return _console(width=None if sys.stderr.isatty() else PLAIN_WIDTH, stderr=True)


def say(text: str) -> None:
    """One line of plain text, no markup read into it, never wrapped."""
    out().print(visible(redact(text)), soft_wrap=True)


def complain(text: str) -> None:
    """An error or a warning, as written; above what is drawn, where both are on a terminal."""
    terminal = sys.stderr.isatty()
    console = out() if terminal and _DRAWN.is_set() else err()
    console.print(visible(redact(text)), soft_wrap=True, style="red" if terminal else None)


def drawn(*, begins: bool) -> None:
    """Something that moves is drawn on standard output from now on, or no more."""
    (_DRAWN.set if begins else _DRAWN.clear)()


def emit_json(value: Any) -> None:
    """For scripts: nothing else is on standard output. NaN and infinities, which JSON lacks, are texts."""
    sys.stdout.write(json.dumps(_finite(value), indent=2, sort_keys=True, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class Visible:
    """A renderable whose texts hold no control characters; those of Rich itself are no texts."""

    def __init__(self, inner: "RenderableType") -> None:
        self._inner = inner

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[Segment]":
        """Rich's own name for it."""
        from rich.segment import Segment

        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def _console(*, width: int | None, stderr: bool = False) -> "Console":
    from rich.console import Console, ConsoleRenderable, RenderHook

    class EverythingVisible(RenderHook):
        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            return [Visible(each) for each in renderables]

    made = Console(width=width, stderr=stderr, highlight=False, markup=False, emoji=False)
    made.push_render_hook(EverythingVisible())
    return made


class Name:
    """The name of an arm, shown in as many lines as its column needs.

    Names have no spaces, so a column that is too narrow breaks them at their parts.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def lines(self, width: int) -> "Iterator[str]":
        """Of at most `width` characters each; a part that is longer is cut."""
        line = ""
        for part in _PART.findall(self._text):
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
        """Rich's own name for it."""
        from rich.text import Text

        yield Text("\n".join(self.lines(max(1, options.max_width))))

    def __rich_measure__(self, console: "Console", options: "ConsoleOptions") -> "Measurement":
        """Rich's own name for it."""
        from rich.measure import Measurement

        longest = max(map(len, _PART.findall(self._text)))
        return Measurement(min(longest, options.max_width), min(len(self._text), options.max_width))
