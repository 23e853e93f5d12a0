"""Runs of a workload: from beginning to end, and stopped, saved and continued at every report."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trainables.protocol import Job, Measurement, Workload

Trained = TypeVar("Trained", bound=Workload)
MOST = 10_000
"""Reports after which a trial is taken to go on for ever."""


def undisturbed(make: Callable[[Job], Trained], job: Job) -> tuple[list[Measurement], Trained]:
    """All measurements of a trial, and its workload, which is not closed."""
    workload, found = make(job), []
    while not workload.finished:
        if (measurement := workload.advance()) is not None:
            found.append(measurement)
        if len(found) > MOST:
            raise AssertionError(f"a trial must end, got {MOST:,} reports and no end")
    return found, workload


def interrupted(make: Callable[[Job], Trained], job: Job, folder: Path) -> tuple[list[Measurement], Trained]:
    """The same, saved in the empty `folder` at every report, closed, and continued by another workload."""
    workload, found = make(job), []
    while not workload.finished:
        measurement = workload.advance()
        if measurement is None:
            continue
        found.append(measurement)
        saved = folder / str(len(found))
        saved.mkdir()
        workload.save(saved)
        workload.close()
        workload = make(job)
        workload.restore(saved)
        if len(found) > MOST:
            raise AssertionError(f"a resumed trial must end, got {MOST:,} reports and no end")
    return found, workload
