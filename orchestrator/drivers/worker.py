"""The half of every driver that runs where the trial runs: builds, steps and saves it, and explains its end.

Knows neither Ray nor torch. A driver calls `start` once a trial, `advance` until the reply says that it has
ended or the conductor says stop, and in the second case `stop`.
"""

import importlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from orchestrator.conductor.messages import Reply
from orchestrator.drivers import worker_checkpoints as checkpoints
from orchestrator.drivers.silence import heard_within
from orchestrator.drivers.worker_outcomes import outcome_of
from orchestrator.errors import InputError
from orchestrator.trials import Outcome, OutcomeKind
from trainables.protocol import Job, Measurement, Phase, Workload

_log = logging.getLogger(__name__)


def load_workload(path: str) -> type[Workload]:
    """The class at `module:Class`. Raises InputError."""
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"a workload must be given as module:Class that can be imported, got {path!r}: {error}"
        ) from error
    assert isinstance(found, type), f"{path} must be a class"
    return found


class Harness:
    """Runs one trial at a time; used again for the next."""

    def __init__(
        self, workload: str, checkpoint_seconds: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._class = load_workload(workload)
        self._checkpoint_seconds = checkpoint_seconds
        self._clock = clock
        self._workload: Workload | None = None
        self._folder = Path()
        self._phase: Phase = "search"
        self._last: Measurement | None = None
        self._again: Measurement | None = None
        self._saved_step = -1
        self._saved_at = 0.0
        self._failure: Outcome | None = None

    def start(self, job: Job, folder: Path) -> None:
        """Build the workload and continue from the newest sound checkpoint in `folder`.

        Never raises for what the trial does: what goes wrong is the first `advance`'s reply.
        """
        self._close()
        self._folder, self._phase = folder, job.phase
        self._last = self._again = self._failure = None
        self._saved_step, self._saved_at = -1, self._clock()
        checkpoints.clear_unfinished(folder)
        try:
            self._restore(_with_source(job))
        except Exception as error:  # an outcome, whatever it is
            self._failed(outcome_of(error))

    def advance(self, silence_s: float | None = None) -> Reply:
        """One report. After a restore the first is the checkpoint's own, for the ledger may not have it.

        After `silence_s` seconds without it the trial has timed out, if it can be reached.
        """
        if self._failure is not None:
            return Reply(ended=self._failure)
        assert self._workload is not None, "start must come first"
        try:
            with heard_within(silence_s):
                measurement = self._again or self._workload.advance()
        except Exception as error:  # an outcome, whatever it is
            return self._failed(outcome_of(error))
        if self._again is None and (flaw := self._flaw(measurement)) is not None:
            return self._failed(flaw)
        self._last, self._again = measurement, None
        if self._workload.finished:
            # A search's last checkpoint lives until its end is recorded: not worth waiting for the disk.
            saved = self._save(flush=self._phase != "search")
            self._close()
            return Reply(measurement, saved, Outcome(OutcomeKind.FINISHED, f"ran to step {measurement.step}"))
        due = self._clock() - self._saved_at >= self._checkpoint_seconds
        return Reply(measurement, self._save() if due else None)

    def stop(self, *, save: bool) -> Reply:
        """Let go of the trial, with a checkpoint to continue from if `save`."""
        saved = self._save() if save and self._workload is not None else None
        self._close()
        return Reply(checkpoint=saved)

    def _restore(self, job: Job) -> None:
        for checkpoint in checkpoints.complete(self._folder):
            try:
                measurement = checkpoint.measurement()
                self._workload = self._class(job)
                self._workload.restore(checkpoint.state)
            except Exception as error:  # an older one may be sound
                _log.warning("checkpoint %s is passed over: %r", checkpoint.folder, error)
                self._close()
            else:
                self._last = self._again = measurement
                self._saved_step = checkpoint.step
                return
        self._workload = self._class(job)

    def _failed(self, outcome: Outcome) -> Reply:
        self._failure = outcome
        self._close()
        return Reply(ended=outcome)

    def _flaw(self, measurement: Measurement) -> Outcome | None:
        """Why a measurement cannot be reported, as the end of its trial."""
        for name, value in measurement.metrics.items():
            if not math.isfinite(value):
                told = f"metrics must stay finite, got {name}={value} at step {measurement.step}"
                return Outcome(OutcomeKind.DIVERGED, told)
        if self._last is None or measurement.step > self._last.step:
            return None
        told = f"steps must increase, got {measurement.step} after {self._last.step}; mend the workload"
        return Outcome(OutcomeKind.CRASHED, told)

    def _save(self, *, flush: bool = True) -> int | None:
        """Step of a new checkpoint; None if the newest is of this step already or the disk refuses."""
        assert self._workload is not None, "there must be a workload to save"
        if self._last is None or self._last.step == self._saved_step:
            return None
        try:
            made = checkpoints.write(self._folder, self._last, self._workload.save, flush=flush)
            self._saved_step = made.step
            return self._saved_step
        except Exception as error:  # a full disk costs a checkpoint, not the trial
            _log.warning("no checkpoint at step %d in %s: %r", self._last.step, self._folder, error)
            return None
        finally:
            self._saved_at = self._clock()

    def _close(self) -> None:
        workload, self._workload = self._workload, None
        if workload is None:
            return
        try:
            workload.close()
        except Exception as error:  # the trial's outcome is known already
            _log.warning("closing a workload failed: %r", error)


def _with_source(job: Job) -> Job:
    """The job with `source` pointing at the state inside the newest sound checkpoint there."""
    if job.source is None:
        return job
    for checkpoint in checkpoints.complete(job.source):
        try:
            checkpoint.measurement()
        except checkpoints.Damaged as error:
            _log.warning("checkpoint %s is passed over: %s", checkpoint.folder, error)
        else:
            return replace(job, source=checkpoint.state)
    raise FileNotFoundError(
        f"a confirmed trial must have left a checkpoint in {job.source}, found none that is sound"
    )
