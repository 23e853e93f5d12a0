"""A text kept beside a test: written when that is asked for, compared otherwise."""

import difflib
import re
from pathlib import Path

from trainables.atomic import write_atomically

FOLDER = "snapshots"
UPDATE = "--snapshot-update"
_ODD = re.compile(r"[^\w.=-]+")


def snapshot_file(test_file: Path, test: str, name: str) -> Path:
    """Where a test keeps the snapshot called `name`: `snapshots/<file>.<test>.<name>.txt` beside it."""
    parts = (test_file.stem, test, name)
    return test_file.parent / FOLDER / f"{'.'.join(_ODD.sub('-', part).strip('-') for part in parts)}.txt"


def check_snapshot(file: Path, text: str, *, update: bool) -> None:
    """Write `text` if `update`, else fail unless it is what `file` holds. Raises AssertionError."""
    __tracebackhide__ = True
    if update:
        file.parent.mkdir(exist_ok=True)
        write_atomically(file, text)
        return
    if not file.is_file():
        raise AssertionError(
            f"there must be a snapshot to compare with, and {file} is not there; "
            f"write it with pytest {UPDATE}, read it, and commit it"
        )
    kept = file.read_text(encoding="utf-8")
    if kept != text:
        names = ("snapshot", "now")
        lines = difflib.unified_diff(kept.splitlines(), text.splitlines(), *names, lineterm="", n=1)
        message = "\n".join(lines)
        raise AssertionError(
            f"the expansion must be that of {file}; if it was changed on purpose, pytest {UPDATE}\n{message}"
        )
