"""Run a trial on its machine: build, advance and save the workload, and report its end.

The module imports neither Ray nor torch. A driver calls `start` once per trial, then `advance` until the
trial ends, or `stop` if the conductor decides to stop it.
"""

import copy
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from orchestrator.conductor.messages import Reply
from orchestrator.errors import InputError
from orchestrator.execution.checkpoints.checkpoint_stores import (
    PATIENCE_S,
    CheckpointStore,
    FolderStore,
    StoreUnreachable,
)
from orchestrator.execution.checkpoints.worker_checkpoints import CheckpointDamaged
from orchestrator.execution.trial.worker_measurements import validate_measurement
from orchestrator.execution.trial.worker_outcomes import SourceCheckpointMissing, classify_error
from orchestrator.files.redact import escape_unstorable, redact, redact_value
from orchestrator.identity import checkpoint_step
from orchestrator.isolation.child import received_signal
from orchestrator.trials import Outcome, OutcomeKind
from trainables.custom.instrumented_settings import InstrumentedSettings
from trainables.custom.outside import load
from trainables.metrics import split_and_quantity
from trainables.protocol import Job, Measurement, Phase, Workload

_log = logging.getLogger(__name__)
FILE_CHECK_S = 0.5
"""Seconds between two checks of the trial's files."""
PENDING_CHECKPOINT_POLL_S = 0.2
"""Seconds between two empty replies of a finished trial that waits to write its checkpoint."""
FAILURE_PAUSE_FACTOR = 3.0
"""Minimum work time after a failed checkpoint, as a multiple of the duration of the failure."""


def load_workload(path: str) -> Callable[[Job], Workload]:
    """Return the function that builds a workload of the trainable at `module:name`. Raise `InputError`."""
    try:
        return load(path).workload
    except ValueError as error:
        raise InputError(f"a trainable must be an importable module:name, got {path!r}: {error}") from error


class Harness:
    """Runner of trials, one after another.

    Args:
        workload: `module:name` of the trainable.
        checkpoint_seconds: Minimum seconds between two checkpoints.
        clock: Returns the time in seconds.
        store: Store of checkpoints, by default the sweep's folder.
        on_error: Called with an exception of the trial.
        check: Called between reports; an exception from it ends the trial.
        records_reads: Whether replies name the fields of the settings that the trial has not read so far.
    """

    def __init__(
        self,
        workload: str,
        checkpoint_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        store: CheckpointStore | None = None,
        *,
        on_error: Callable[[OutcomeKind, BaseException], None] | None = None,
        check: Callable[[], None] | None = None,
        records_reads: bool = False,
    ) -> None:
        self._build_workload = load_workload(workload)
        self._store = store or FolderStore()
        self._on_error = on_error or (lambda *_: None)
        self._check = check or (lambda: None)
        self._records_reads = records_reads
        self._instrumented_settings: InstrumentedSettings | None = None
        self._checked_at = 0.0
        self._checkpoint_seconds = checkpoint_seconds
        self._clock = clock
        self._workload: Workload | None = None
        self._folder = Path()
        self._phase: Phase = "search"
        self._splits: tuple[str, ...] = ()
        self._last: Measurement | None = None
        self._unsent_report: Measurement | None = None
        self._finished = False
        self._saved_step = -1
        self._save_error = ""
        self._saved_at = 0.0
        self._is_checkpoint_pending = False
        self._failure: Outcome | None = None
        self._unreachable: StoreUnreachable | None = None

    def start(self, job: Job, folder: Path) -> None:
        """Build the workload and continue from the newest readable checkpoint in `folder`.

        Errors of the trial are not raised here but returned by the first `advance`.

        Args:
            job: The job to run.
            folder: Folder of the trial's checkpoints.
        """
        self._close()
        self._folder, self._phase, self._splits = folder, job.phase, job.splits
        self._last = self._unsent_report = self._failure = self._unreachable = None
        self._saved_step, self._saved_at, self._is_checkpoint_pending = -1, self._clock(), False
        self._save_error = ""
        try:
            self._store.clear_unfinished(folder)
            self._restore(self._with_source(job))
        except StoreUnreachable as error:  # not a fault of the trial
            self._unreachable = error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # any exception becomes an outcome
            self._failure_reply(classify_error(error), error)

    @property
    def is_checkpoint_pending(self) -> bool:
        """Whether a checkpoint waits until the ledger contains all reports; `advance` then writes it."""
        return self._is_checkpoint_pending

    def advance(self, *, is_recorded: bool = True) -> Reply:
        """Return the next report; after a restore, first the report of the checkpoint.

        A resumed trial repeats no measurement from before its checkpoint, so a checkpoint is written only
        after every earlier measurement is in the ledger. The reply is empty if a finished trial waits for
        that.

        Args:
            is_recorded: Whether the ledger contains all measurements of earlier replies.

        Raises:
            StoreUnreachable: The trial could not start, since the store of checkpoints does not respond.
        """
        reply = _redact_reply(self._step(is_recorded=is_recorded))
        if self._instrumented_settings is None:
            return reply
        return replace(reply, unread_fields=tuple(self._instrumented_settings.unread_fields()))

    def _step(self, *, is_recorded: bool) -> Reply:
        if self._unreachable is not None:
            raise self._unreachable
        if self._failure is not None:
            return Reply(ended=self._failure)
        assert self._workload is not None, "`start` must run first"
        if self._is_checkpoint_pending and is_recorded:
            return self._save_checkpoint(None)
        if self._is_checkpoint_pending and self._finished:
            time.sleep(PENDING_CHECKPOINT_POLL_S)
            return Reply()
        try:
            measurement = self._unsent_report or self._next_report()
            self._finished = measurement is None or bool(self._workload.finished)
            if self._finished or self._clock() - self._checked_at >= FILE_CHECK_S:
                self._check()
                self._checked_at = self._clock()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # any exception becomes an outcome
            return self._failure_reply(classify_error(error), error)
        if self._finished and received_signal():
            raise KeyboardInterrupt("training code ended early after a signal")
        self._last, self._unsent_report = measurement or self._last, None
        if measurement is None:
            self._saved_step = -1  # the state may have changed after the last report
        is_due = self._finished or self._clock() - self._saved_at >= self._checkpoint_seconds
        self._is_checkpoint_pending = self._is_checkpoint_pending or (is_due and not is_recorded)
        return self._save_checkpoint(measurement) if is_due and is_recorded else Reply(measurement)

    def _next_report(self) -> Measurement | None:
        """Return the next report; None if the workload ended without another one."""
        assert self._workload is not None, "`start` must run before `advance`"
        with _end_forked_copies():
            measurement = self._workload.advance()
        has_ended = measurement is None and self._last is not None and bool(self._workload.finished)
        return None if has_ended else validate_measurement(measurement, self._last)

    def _save_checkpoint(self, measurement: Measurement | None) -> Reply:
        """Write a checkpoint; return a reply with it, `measurement` and, after the last step, the outcome."""
        assert self._workload is not None, "there must be a workload to save"
        assert self._last is not None, "a checkpoint follows a measurement"
        self._is_checkpoint_pending = False
        if not self._finished:
            return Reply(measurement, self._save())
        # A search trial's last checkpoint is deleted once its end is recorded, so it is not flushed to disk.
        is_search = self._phase == "search"
        saved_step = self._save(flush=not is_search, patience_s=0.0 if is_search else PATIENCE_S)
        save_error = "" if is_search or self._saved_step == self._last.step else f", {self._save_error}"
        self._close()
        reason = f"ran to step {self._last.step}{save_error}{self._missing_splits_clause(self._last)}"
        return Reply(measurement, saved_step, Outcome(OutcomeKind.FINISHED, reason))

    def _missing_splits_clause(self, last: Measurement) -> str:
        """Return a clause with the test splits that a confirm trial did not report; empty if none."""
        measured_splits = {split_and_quantity(name)[0] for name in last.metrics}
        if "" in measured_splits:
            return ""  # the spec may assign a metric without a split to one of the confirm splits
        missing_splits = [split for split in self._splits if split not in measured_splits]
        if self._phase != "confirm" or not missing_splits:
            return ""
        return f", and its last report has no metric of the test splits {', '.join(missing_splits)}"

    def stop(self, *, save: bool) -> Reply:
        """End the trial, with a checkpoint to continue from if `save` is True."""
        saved_step = self._save() if save and self._workload is not None else None
        self._close()
        return Reply(checkpoint=saved_step)

    def _restore(self, job: Job) -> None:
        for checkpoint in self._store.complete(self._folder):
            try:
                measurement = checkpoint.measurement()
                self._workload = self._start_workload(job)
                self._workload.restore(checkpoint.state)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # an older checkpoint may be readable
                _log.warning("checkpoint %s is skipped: %s", checkpoint.folder, redact(repr(error)))
                self._close()
            else:
                self._last = self._unsent_report = measurement
                self._saved_step = checkpoint.step
                return
        self._workload = self._start_workload(job)

    def _start_workload(self, job: Job) -> Workload:
        settings = copy.deepcopy(dict(job.settings))
        if self._records_reads:
            settings = self._instrumented_settings = InstrumentedSettings(settings)
        with _end_forked_copies():
            return self._build_workload(replace(job, settings=settings))

    def _with_source(self, job: Job) -> Job:
        """Return the job whose `source` is the state folder of the confirm trial's last checkpoint.

        Older checkpoints of the confirm trial are not accepted, since they contain another model.

        Raises:
            SourceCheckpointMissing: The checkpoint is missing or damaged.
        """
        if job.source is None:
            return job
        reason = (
            "is missing: the disk was full, someone deleted it, or this machine does not share its folder"
        )
        for checkpoint in self._store.complete(job.source.parent):
            if checkpoint.step == checkpoint_step(job.source.name):
                try:
                    checkpoint.measurement()
                except CheckpointDamaged as error:
                    reason = f"is damaged ({redact(error)})"
                else:
                    return replace(job, source=checkpoint.state)
        raise SourceCheckpointMissing(
            f"the last checkpoint of the confirm trial, {job.source}, cannot be read: it {reason}; "
            "fix the cause, then `haltsweep resume NAME --retry failed`"
        )

    def _failure_reply(self, outcome: Outcome, error: BaseException) -> Reply:
        if received_signal():
            raise error  # not an outcome: training code raises in response to an external signal
        self._failure = outcome
        traceback.print_exception(error)  # log the full traceback in the log of the trial
        self._on_error(outcome.kind, error)
        self._close()
        return Reply(ended=outcome)

    def _save(self, *, flush: bool = True, patience_s: float = 0.0) -> int | None:
        """Write a checkpoint and return its step; None if this step is already saved or the write fails."""
        assert self._workload is not None, "there must be a workload to save"
        if self._last is None or self._last.step == self._saved_step:
            return None
        started_at, failure_s = self._clock(), 0.0
        try:
            checkpoint = self._store.write(
                self._folder, self._last, self._workload.save, flush=flush, patience_s=patience_s
            )
            if checkpoint is None:
                return None
            self._saved_step = checkpoint.step
            return checkpoint.step
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a full disk or a failed upload must not end the trial
            step, reason = self._last.step, redact(repr(error))
            self._save_error = escape_unstorable(f"without its last checkpoint: {reason}")
            _log.warning("no checkpoint at step %d in %s: %s", step, self._folder, reason)
            failure_s = self._clock() - started_at
            return None
        finally:
            # After a slow failure, the trial works longer before the next attempt.
            self._saved_at = self._clock() + FAILURE_PAUSE_FACTOR * failure_s

    def _close(self) -> None:
        workload, self._workload = self._workload, None
        try:
            if workload is not None:
                with _end_forked_copies():
                    workload.close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the outcome of the trial is already known
            _log.warning("closing trial %s failed: %s", self._folder.name, redact(repr(error)))


def _redact_reply(reply: Reply) -> Reply:
    """Return the reply without secrets in its texts, which ledger, report and MLflow will contain.

    This function runs in the process of the trial, whose environment may contain secrets that other processes
    lack.
    """
    measurement, outcome = reply.measurement, reply.ended
    if measurement is not None and (measurement.attributes or measurement.examples):
        attributes, examples = redact_value(measurement.attributes), redact_value(measurement.examples)
        measurement = replace(measurement, attributes=attributes, examples=tuple(examples))
    if outcome is not None:
        outcome = replace(outcome, reason=redact(outcome.reason))
    return replace(reply, measurement=measurement, ended=outcome)


@contextmanager
def _end_forked_copies() -> Iterator[None]:
    """End a process that the trial forked when that process would leave this context."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(sys.exc_info()[0] is not None)
