"""A workload that reports and raises whatever it is told to: for what a trial may say."""

from pathlib import Path
from typing import Any

from trainables.protocol import Job, Measurement

PATH = "tests.support.hostile:Hostile"


class Hostile:
    """One trial of one report; what that is, or what is raised instead, is set on the class."""

    report: Any = Measurement(1, 1.0, {})
    raised: BaseException | None = None

    def __init__(self, job: Job) -> None:
        self.finished = False

    def advance(self) -> Any:
        if self.raised is not None:
            raise self.raised
        self.finished = True
        return self.report

    def save(self, folder: Path) -> None:
        pass

    def restore(self, folder: Path) -> None:
        pass

    def close(self) -> None:
        pass
