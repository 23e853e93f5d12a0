"""The code blocks of README and docs, each with the directive of the comment above it.

A comment directly above a block says what a test does with it:

    <!-- file: digits.py -->          writes the block to this file; a spec is checked
    <!-- added to: digits.yaml -->    a part of a spec: its keys replace those of the file, then it is checked
    <!-- not run: needs SLURM -->     nothing

Without a comment Python is executed, commands are run, a spec is checked, and other languages are only shown.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.source import ROOT, tracked

BLOCK = re.compile(
    r"^(?:<!-- (?P<does>file|added to|not run): (?P<what>[^\n]+?) -->\n)?"
    r"```(?P<language>[^\n]*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
RUN_LANGUAGES = ("python", "sh", "yaml")
"""Languages of blocks that a test must run, unless a directive excludes them."""


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    body: str
    does: str
    """Directive: `file`, `added to`, `not run`, or empty."""
    what: str

    @property
    def place(self) -> str:
        """Page and line, for messages."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return README and all pages of docs, relative to the root."""
    return [path for path in tracked() if path.suffix == ".md" and (path.parts[0] in ("README.md", "docs"))]


def blocks(page: Path) -> Iterator[CodeBlock]:
    """Yield the blocks of a page in order."""
    text = (ROOT / page).read_text("utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        parts = (match[name] or "" for name in ("language", "body", "does", "what"))
        yield CodeBlock(page, line, *parts)
