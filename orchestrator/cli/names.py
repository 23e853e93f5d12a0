"""Names of arms in tables: they have no spaces, so a column that is too narrow breaks them at their parts."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement

_PART = re.compile(r"[^-_/.,=\[\] ]*[-_/.,=\[\] ]*")


class Name:
    """A name that is shown in as many lines as its column needs."""

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
