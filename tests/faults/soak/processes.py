"""Launchers as processes of their own, and the processes that belong to them."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.faults.soak.sweep import session
from tests.support.processes.forks import forks
from tests.support.processes.process_lookup import family_of, wait_until

MARK = "HALTSWEEP_SOAK"
"""Variable that every process of a round inherits; it holds the folder of the round."""
OUTPUT = "output.txt"
TAIL = 600
"""Characters of it that are kept."""


class Launcher:
    """A session of the sweep below `root`: a quick fork, as Ray's driver has an interpreter of its own."""

    def __init__(self, root: Path, temporary: Path) -> None:
        self.started_at = time.monotonic()
        self._output = root / OUTPUT
        self._pid, self._code = self._fork(root, temporary)
        self._process = psutil.Process(self._pid) if self._code() is None else None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._code() is None

    @property
    def code(self) -> int | None:
        """How it ended, as `subprocess` tells it."""
        return self._code()

    def family(self) -> list[psutil.Process]:
        """What it has started, and what that has."""
        return family_of(self._process) if self._process is not None else []

    def said(self) -> str:
        """The end of what sessions have said so far."""
        text = self._output.read_text(errors="replace") if self._output.exists() else ""
        return text.strip()[-TAIL:]

    def kill(self) -> None:
        """`kill -9`; returns when it is gone."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, 9)
        wait_until(lambda: not self.running, "a killed launcher is gone")

    @staticmethod
    def _fork(root: Path, temporary: Path) -> tuple[int, Callable[[], int | None]]:
        process = forks.Process(target=_forked, args=(root, temporary))
        process.start()
        assert process.pid is not None, "a process that was started has an id"
        return process.pid, lambda: process.exitcode


def environment(root: Path, temporary: Path) -> dict[str, str]:
    """Of every process of a round."""
    return {MARK: str(root), "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}


def _forked(root: Path, temporary: Path) -> None:
    os.environ.update(environment(root, temporary))
    output = os.open(root / OUTPUT, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    session(root)


def marked(root: Path) -> list[psutil.Process]:
    """All living processes of a round but servers and forks, whoever their parent is by now."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == str(root) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
