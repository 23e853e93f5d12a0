"""Where people are spoken to: one console for answers, one for errors, JSON for scripts."""

import json
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 160
"""Columns when nobody is watching: a log or a pipe has no width of its own."""


@cache
def out() -> "Console":
    """Standard output; plain and wide when it is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


@cache
def err() -> "Console":
    """Standard error."""
    from rich.console import Console

    return Console(stderr=True, width=None if sys.stderr.isatty() else PLAIN_WIDTH, highlight=False)


def say(text: str) -> None:
    """One line of plain text, no markup read into it, never wrapped."""
    out().print(text, markup=False, soft_wrap=True)


def complain(text: str) -> None:
    """An error or a warning, as written."""
    err().print(text, markup=False, soft_wrap=True, style="red" if sys.stderr.isatty() else None)


def emit_json(value: Any) -> None:
    """For scripts: nothing else is on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")
