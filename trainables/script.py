"""Runs a script as a trainable, with the settings as flags: `python script.py --lr 0.1`.

A script reports by `haltsweep.current_trial().report(step, metrics)`, or appends a line of JSON for each
report to `metrics.jsonl` in its working folder: {"step": 1, "valid/loss": 0.5}. Those lines are read whenever
the script opens the file, and when the script has ended.
"""

import json
import os
import re
import runpy
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trainables.extensions import look_in
from trainables.function import FunctionTrial

METRICS: Final = "metrics.jsonl"
CALLS_MAIN: Final = re.compile(r"^(?!\s*(?:async )?def ).*\bmain\(", re.MULTILINE)


def find_script(path: str) -> Path:
    """Return the script at `path`, which is relative to the current directory or to one on Python's path.

    Raises:
        ValueError: There is no such script.
    """
    for place in (Path.cwd(), *map(Path, sys.path)):
        if (file := place / path).is_file():
            look_in(file.parent)
            return file.resolve()
    raise ValueError(f"must be a script that is there, got {path}; it is looked for from {Path.cwd()}")


class Script:
    """A script as a training function `script(settings, trial)`."""

    def __init__(self, file: Path) -> None:
        """Create a trainable from the file of a script."""
        self._file = file

    def __call__(self, settings: Mapping[str, Any], trial: FunctionTrial) -> None:
        """Run the script until it ends. A script with a flag `--seed` gets the trial's seed.

        Args:
            settings: Values of the script's flags.
            trial: Trial that receives the reports.
        """
        source = self._file.read_text(encoding="utf-8")
        known = {"seed": trial.seed, **settings} if _has("--seed", source) else settings
        arguments = list(flags(known, source))
        reader = MetricsReader(Path.cwd() / METRICS, trial)
        sys.addaudithook(reader.opened)
        before = sys.argv
        sys.argv = [str(self._file), *arguments]
        try:
            names = runpy.run_path(str(self._file), run_name="__main__")
            if callable(names.get("main")) and not CALLS_MAIN.search(source):
                names["main"](arguments)
        except SystemExit as ending:
            if ending.code not in (None, 0):
                raise
        finally:
            sys.argv = before
            reader.is_open = False
        reader.read()


def flags(settings: Mapping[str, Any], source: str) -> Iterator[str]:
    """Return the command line arguments for settings.

    Names are written with `_` or `-`, whichever the script uses. True gives the flag alone, false nothing or
    `--no-name` if the script has that, null nothing, a list several values, a mapping flags such as
    `--model.width`.

    Args:
        settings: Values by name.
        source: Text of the script.
    """
    for name, value in settings.items():
        flag = _flag(name, source)
        if isinstance(value, Mapping):
            yield from flags({f"{name}.{key}": each for key, each in value.items()}, source)
        elif isinstance(value, list | tuple):
            yield from (flag, *map(str, value))
        elif value is True:
            yield flag
        elif value is False:
            negated = f"--no-{flag.removeprefix('--')}"
            if _has(negated, source) or re.search(
                rf"{re.escape(flag)}['\"][^)]*BooleanOptionalAction", source
            ):
                yield negated
        elif value is not None:
            yield f"{flag}={value}"


def _flag(name: str, source: str) -> str:
    """Return the flag as the source writes it, with `_` or `-`."""
    forms = (f"--{name}", f"--{name.replace('_', '-')}", f"--{name.replace('-', '_')}")
    return next((each for each in forms if _has(each, source)), forms[0])


def _has(flag: str, source: str) -> bool:
    return re.search(rf"{re.escape(flag)}(?![\w-])", source) is not None


class MetricsReader:
    """Reports the lines that a script appends to a file."""

    def __init__(self, file: Path, trial: FunctionTrial) -> None:
        """Follow a file. Lines that it has already are ignored.

        Args:
            file: JSON lines, each with a `step`.
            trial: Trial that receives the reports.
        """
        self.is_open = True
        """Whether the script is running."""
        self._file, self._trial = str(file), trial
        self._read_bytes = file.stat().st_size if file.is_file() else 0
        self._lines = 0

    def opened(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Read the file whenever the script opens it; an audit hook."""
        if event != "open" or not self.is_open or isinstance(arguments[0], int):
            return
        if os.path.abspath(os.fsdecode(arguments[0])) == self._file:  # noqa: PTH100 - of every opened file
            self.read()

    def read(self) -> None:
        """Report all new complete lines.

        Raises:
            ValueError: A line is not a mapping with a step.
        """
        was_open, self.is_open = self.is_open, False
        try:
            if not os.path.exists(self._file):  # noqa: PTH110 - as above
                return
            with open(self._file, "rb") as lines:  # noqa: PTH123 - as above
                if os.fstat(lines.fileno()).st_size < self._read_bytes:  # written anew
                    self._read_bytes = 0
                lines.seek(self._read_bytes)
                text = lines.read()
        finally:
            self.is_open = was_open
        complete = text if not was_open else text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(complete)
        for line in filter(None, map(bytes.strip, complete.split(b"\n"))):
            self._lines += 1
            try:
                metrics = dict(json.loads(line))
                step = metrics.pop("step")
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(
                    f"{METRICS}:{self._lines}: a line must be a mapping such as "
                    f'{{"step": 1, "valid/loss": 0.5}}, got '
                    f"{line.decode(errors='replace')[:200]}"
                ) from error
            self._trial.report(step, metrics)
