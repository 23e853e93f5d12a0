"""Run a sweep without Ray, one trial at a time: for notebooks, debuggers and small machines."""

import pdb  # noqa: T100 - a debugger is what is asked for
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from orchestrator.conductor.messages import Continue, Reply
from orchestrator.execution.checkpoints.checkpoint_stores import make_store
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.trial_jobs import Attempt, JobEncoder, WorkerJob
from orchestrator.execution.trial.trial_process import ChildDeath, Instruction, ProcessSlot
from orchestrator.execution.trial.watchdog import hang_reason
from orchestrator.execution.trial.worker import Harness
from orchestrator.trials import Outcome, OutcomeKind

STOP_REASON = "the sweep was asked to stop"
DEBUGGED_KINDS = frozenset({OutcomeKind.CRASHED, OutcomeKind.OUT_OF_MEMORY})
"""Outcomes caused by an unexpected exception in the code of the trial."""
POLL_S = 0.2
"""Seconds between two checks for a stop request, or for a ledger that was unreachable."""


def _do_nothing() -> None:
    pass


def run_inline(
    recorder: Recorder,
    job_encoder: JobEncoder,
    *,
    silence_s: float | None = None,
    on_change: Callable[[], None] = _do_nothing,
    stop: threading.Event | None = None,
    check: Callable[[], None] = _do_nothing,
    debug: bool = False,
) -> None:
    """Run trials until the sweep is finished or drained.

    Args:
        recorder: The open sweep.
        job_encoder: Encoder of the trials.
        silence_s: Seconds without a report after which a trial times out; None for no limit.
        on_change: Called after every recorded change.
        stop: Once set, the running trial writes a checkpoint at its next report and ends as stopped.
        check: Called often; an exception that it raises ends the run at once.
        debug: Run trials in this process, and open Python's debugger when one fails.

    Raises:
        InputError: With `debug`, the trainable cannot be imported.
        StoreUnreachable: The store of checkpoints does not respond.
    """
    stop = stop or threading.Event()
    if debug:
        slot: ProcessSlot | DebuggerSlot = DebuggerSlot(job_encoder, stop)
    else:
        slot = ProcessSlot(job_encoder.workload, job_encoder.launch_folder, job_encoder.cpus)
    run = _InlineRun(recorder, slot, job_encoder, stop, on_change, silence_s, check)
    with closing(slot):
        while not stop.is_set() and (attempt := recorder.next_attempt()) is not None:
            run.on_change()
            run.run_trial(attempt)
    if stop.is_set():
        recorder.drain(STOP_REASON)
    assert recorder.is_finished or recorder.drain_reason, (
        "without a running trial, the recorder has an attempt unless the sweep is over"
    )


@dataclass(frozen=True)
class _InlineRun:
    recorder: Recorder
    slot: "ProcessSlot | DebuggerSlot"
    job_encoder: JobEncoder
    stop: threading.Event
    on_change: Callable[[], None]
    silence_s: float | None
    check: Callable[[], None]

    def run_trial(self, attempt: Attempt) -> None:
        """Run one attempt until it ends or is stopped."""
        if not self._wait_until_written():
            self._process_reply(attempt, Reply(ended=Outcome(OutcomeKind.STOPPED, STOP_REASON)))
            return
        self.slot.start(self.job_encoder.worker_job(attempt))
        last_reply_at = time.monotonic()
        while True:
            reply = self.slot.next(POLL_S)
            silent_s = time.monotonic() - last_reply_at
            self.check()
            if self.stop.is_set():
                self.recorder.drain(STOP_REASON)
            if reply is None:
                if self.silence_s is not None and silent_s > self.silence_s:
                    self.slot.kill()
                    reason = hang_reason(self.silence_s)
                    self._process_reply(attempt, Reply(ended=Outcome(OutcomeKind.TIMED_OUT, reason)))
                    return
                continue
            if isinstance(reply, ChildDeath):
                self._record_death(attempt, reply)
                return
            last_reply_at = time.monotonic()
            if self._process_reply(attempt, reply):
                return

    def _process_reply(self, attempt: Attempt, reply: Reply) -> bool:
        """Record a reply and answer the worker; return whether the attempt has ended."""
        decision = self.recorder.record(attempt.trial_id, attempt.token, reply)
        self.on_change()
        if reply.ended is not None:
            return True
        is_written = self.recorder.wait_until_written()
        if isinstance(decision, Continue):
            self.slot.instruct(Instruction(is_recorded=is_written))
        else:
            should_save = decision.kind is OutcomeKind.STOPPED and is_written
            self.slot.instruct(Instruction(decision.outcome, should_save, is_written))
        return False

    def _record_death(self, attempt: Attempt, death: ChildDeath) -> None:
        if death.outcome is not None:
            self._process_reply(attempt, Reply(ended=death.outcome))
        else:
            self.recorder.record_death(attempt.trial_id, death.reason, death.cause)
            self.on_change()

    def _wait_until_written(self) -> bool:
        """Wait until the ledger contains all reports; return False if a stop is requested before that."""
        while not self.recorder.wait_until_written(POLL_S):
            self.check()
            if self.stop.is_set():
                return False
        return True


class DebuggerSlot:
    """Slot with the methods of `ProcessSlot` that runs trials in this process, for a debugger.

    Changes to the process persist after a trial.
    """

    def __init__(self, job_encoder: JobEncoder, stop: threading.Event) -> None:
        """Create a slot that sets `stop` when the user leaves the debugger with `quit`."""
        self._stop = stop
        self._instruction = Instruction()
        store = make_store(job_encoder.store)
        interval_s = job_encoder.checkpoint_seconds
        self._harness = Harness(job_encoder.workload, interval_s, store=store, on_error=self._debug_failure)

    def start(self, order: WorkerJob) -> None:
        """Start a trial with seeded random generators."""
        from trainables.custom.generator_state import seed_generators

        self._instruction = Instruction()
        order.scratch.mkdir(parents=True, exist_ok=True)
        seed_generators(order.job.seed)
        self._harness.start(order.job, order.checkpoints)

    def next(self, timeout_s: float) -> Reply:  # noqa: ARG002 - this call cannot be interrupted
        """Continue the trial until its next reply."""
        return self._instruction.follow(self._harness)

    def instruct(self, instruction: Instruction) -> None:
        """Store the answer to the last reply of the trial."""
        self._instruction = instruction

    def kill(self) -> None:
        """Do nothing, since no trial runs between two calls."""

    def close(self) -> None:
        """Close the worker of the trial."""
        self._harness.stop(save=False)

    def _debug_failure(self, kind: OutcomeKind, error: BaseException) -> None:
        if _open_debugger(kind, error):
            self._stop.set()


def _open_debugger(kind: OutcomeKind, error: BaseException) -> bool:
    """Open the debugger for the exception of a failed trial; return whether the user quits the sweep.

    Every other way to exit the debugger, such as `continue`, resumes the sweep.
    """
    if kind not in DEBUGGED_KINDS or error.__traceback__ is None:
        return False
    debugger = pdb.Pdb()
    debugger.message(f"{type(error).__name__}: {error}")
    debugger.message("the trial has failed; `continue` runs the next one, `quit` ends the sweep")
    debugger.reset()
    debugger.interaction(None, error.__traceback__)
    return bool(debugger.quitting)
