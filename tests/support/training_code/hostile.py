"""A workload that sends any report, or raises any exception, that a test chooses."""

import os
import pickle
from pathlib import Path
from typing import Any

from trainables.protocol import Job

PATH = "tests.support.training_code.hostile:Hostile"
VARIABLE = "HALTSWEEP_TEST_HOSTILE"


class UnprintableError(Exception):
    """An exception whose message cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError


def set_report(report: Any, raised: BaseException | None = None) -> None:
    """Make the next trials send `report`, or raise `raised` instead."""
    os.environ[VARIABLE] = pickle.dumps((report, raised)).hex()


class Hostile:
    """A trial with one report."""

    def __init__(self, job: Job) -> None:
        self.finished = False
        self._report, self._raised = pickle.loads(bytes.fromhex(os.environ[VARIABLE]))

    def advance(self) -> Any:
        if self._raised is not None:
            raise self._raised
        self.finished = True
        return self._report

    def save(self, folder: Path) -> None:
        pass

    def restore(self, folder: Path) -> None:
        pass

    def close(self) -> None:
        pass
