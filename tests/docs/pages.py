"""The code blocks of README and docs, each with the directive of the comment above it.

A comment directly above a block says what a test does with it:

    <!-- file: digits.py -->          writes the block to this file; a spec is checked
    <!-- added to: digits.yaml -->    checks the spec of this file with the keys of the block added
    <!-- not run: needs SLURM -->     nothing

Without a comment, a test executes Python, runs commands and checks specs; it ignores other languages.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.source import ROOT, text_files

BLOCK = re.compile(
    r"^(?:<!-- (?P<directive>file|added to|not run): (?P<argument>[^\n]+?) -->\n)?"
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
    directive: str
    """Directive: `file`, `added to`, `not run`, or empty."""
    argument: str

    @property
    def place(self) -> str:
        """Page and line, for messages."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return README and all pages of docs, relative to the root."""
    return [
        path for path in text_files() if path.suffix == ".md" and (path.parts[0] in ("README.md", "docs"))
    ]


def blocks(page: Path) -> Iterator[CodeBlock]:
    """Yield the blocks of a page in order."""
    text = (ROOT / page).read_text("utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        parts = (match[name] or "" for name in ("language", "body", "directive", "argument"))
        yield CodeBlock(page, line, *parts)
