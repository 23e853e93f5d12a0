"""A workload that reports and raises whatever it is told to: for what a trial may say."""

import os
import pickle
from pathlib import Path
from typing import Any

from trainables.protocol import Job

PATH = "tests.support.training_code.hostile:Hostile"
VARIABLE = "HALTSWEEP_TEST_HOSTILE"


class Mute(Exception):
    """It cannot even say what went wrong."""

    def __str__(self) -> str:
        raise RuntimeError


def tell(report: Any, raised: BaseException | None = None) -> None:
    """From now on trials report this, or raise that instead."""
    os.environ[VARIABLE] = pickle.dumps((report, raised)).hex()


class Hostile:
    """One trial of one report."""

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
