"""Run one trial outside of a sweep, in a child process, and discard its files."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from orchestrator.conductor.messages import Reply
from orchestrator.execution.trial.trial_jobs import WorkerJob
from orchestrator.execution.trial.trial_process import ChildDeath, Instruction, ProcessSlot
from orchestrator.identity import SweepFolder
from orchestrator.isolation.child_log import read_log
from orchestrator.trials import Outcome, OutcomeKind
from trainables.protocol import Job

MAX_REPLY_WAIT_S = 3600.0
TRIAL_NAME = "trial"
LOG_FILE = "output.log"
TRACEBACK_START = "Traceback (most recent call last)"
NO_CHECKPOINT_SECONDS = 1e9
"""Seconds between two checkpoints of a trial that is never resumed."""


class SingleTrials:
    """Slot for trials of one trainable."""

    def __init__(self, workload: str, cpus: float, slot: ProcessSlot) -> None:
        self._workload, self._cpus, self._slot = workload, cpus, slot

    def replies(
        self,
        job: Job,
        folder: Path,
        *,
        saves_checkpoints: bool = False,
        records_reads: bool = False,
        limit_s: float = math.inf,
    ) -> Iterator[Reply]:
        """Run `job` and yield its replies; the last reply contains the outcome.

        Args:
            job: The job to run.
            folder: Existing, empty folder for the files of the trial.
            saves_checkpoints: Whether every report is followed by a checkpoint.
            records_reads: Whether replies name the fields of the settings that the trial has not read so far.
            limit_s: Seconds after which no further replies are yielded, not even the outcome.
        """
        self._slot.kill()
        checkpoint_seconds = 0.0 if saves_checkpoints else NO_CHECKPOINT_SECONDS
        self._slot.start(self._worker_job(job, folder, checkpoint_seconds, records_reads=records_reads))
        end = time.monotonic() + limit_s
        while (left_s := end - time.monotonic()) > 0:
            reply = self._slot.next(min(MAX_REPLY_WAIT_S, left_s))
            if isinstance(reply, ChildDeath):
                yield Reply(ended=reply.outcome or Outcome(OutcomeKind.CRASHED, reply.reason))
                return
            if reply is None:
                continue
            if reply.ended is not None:
                outcome = _add_last_output_line(reply.ended, folder / LOG_FILE)
                self._slot.kill()  # so that the child no longer writes its log to the folder
                yield replace(reply, ended=outcome)
                return
            yield reply
            self._slot.instruct(Instruction())

    def _worker_job(
        self, job: Job, folder: Path, checkpoint_seconds: float, *, records_reads: bool
    ) -> WorkerJob:
        sweep = SweepFolder(folder.resolve())
        scratch = sweep.scratch / TRIAL_NAME
        return WorkerJob(
            workload=self._workload,
            checkpoint_seconds=checkpoint_seconds,
            cpus=self._cpus,
            gpus=0.0,
            checkpoints=sweep.checkpoint(TRIAL_NAME),
            job=replace(job, folder=scratch / "files", data_dir=job.data_dir.resolve()),
            scratch=scratch,
            kept_files=sweep.kept_files(TRIAL_NAME),
            log=folder / LOG_FILE,
            records_reads=records_reads,
        )


def _add_last_output_line(outcome: Outcome, log: Path) -> Outcome:
    """Add the last printed line of code that exited, e.g. the error of a parser of arguments."""
    if not outcome.reason.startswith("SystemExit"):
        return outcome
    output = (read_log(log) or "").partition(TRACEBACK_START)[0]
    lines = [line.strip() for line in output.splitlines() if any(map(str.isalnum, line))]
    if not lines:
        return outcome
    first, *rest = outcome.reason.split("\n")
    return replace(outcome, reason="\n".join([f"{first}; it printed: {lines[-1]}", *rest]))


@contextmanager
def single_trials(workload: str, cpus: float = 1.0) -> Iterator[SingleTrials]:
    """Open a slot that runs trials of the trainable one after another, from the current directory."""
    slot = ProcessSlot(workload, Path.cwd(), cpus)
    try:
        yield SingleTrials(workload, cpus, slot)
    finally:
        slot.close()
