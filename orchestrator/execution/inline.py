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
from orchestrator.execution.trial.trial_process import ChildDied, Instruction, ProcessSlot
from orchestrator.execution.trial.watchdog import hang_reason
from orchestrator.execution.trial.worker import Harness, load_workload
from orchestrator.trials import Outcome, OutcomeKind

INTERRUPTED = "the sweep was asked to stop"
SHOWN = frozenset({OutcomeKind.CRASHED, OutcomeKind.OUT_OF_MEMORY})
"""Outcomes caused by an unexpected exception in the code of the trial."""
WAIT_S = 0.2
"""Seconds between two checks for a stop request, or for a ledger that was unreachable."""


def _do_nothing() -> None:
    pass


def run_inline(
    recorder: Recorder,
    orders: JobEncoder,
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
        orders: Encoder of the trials.
        silence_s: Seconds without a report after which a trial times out; None for no limit.
        on_change: Called after every recorded change.
        stop: Once set, the running trial writes a checkpoint at its next report and ends as stopped.
        check: Called often; an exception that it raises ends the run at once.
        debug: Run trials in this process, and open Python's debugger when one fails.

    Raises:
        InputError: The trainable cannot be imported.
        StoreUnreachable: The store of checkpoints does not respond.
    """
    load_workload(orders.workload)
    stop = stop or threading.Event()
    if debug:
        slot: ProcessSlot | DebuggedSlot = DebuggedSlot(orders, stop)
    else:
        slot = ProcessSlot(orders.workload, orders.launch_folder, orders.cpus)
    run = _InlineRun(recorder, slot, orders, stop, on_change, silence_s, check)
    with closing(slot):
        while not stop.is_set() and (attempt := recorder.ask()) is not None:
            run.on_change()
            run.trial(attempt)
    if stop.is_set():
        recorder.drain(INTERRUPTED)
    assert recorder.finished or recorder.draining, "with nothing running, something must be left to hand out"


@dataclass(frozen=True)
class _InlineRun:
    recorder: Recorder
    slot: "ProcessSlot | DebuggedSlot"
    orders: JobEncoder
    stop: threading.Event
    on_change: Callable[[], None]
    silence_s: float | None
    check: Callable[[], None]

    def trial(self, attempt: Attempt) -> None:
        """Run one attempt until it ends or is stopped."""
        if not self._wait_until_written():
            self._take_reply(attempt, Reply(ended=Outcome(OutcomeKind.STOPPED, INTERRUPTED)))
            return
        self.slot.start(self.orders.order(attempt))
        heard_at = time.monotonic()
        while True:
            reply = self.slot.next(WAIT_S)
            silent_s = time.monotonic() - heard_at
            self.check()
            if self.stop.is_set():
                self.recorder.drain(INTERRUPTED)
            if reply is None:
                if self.silence_s is not None and silent_s > self.silence_s:
                    self.slot.kill()
                    reason = hang_reason(self.silence_s)
                    self._take_reply(attempt, Reply(ended=Outcome(OutcomeKind.TIMED_OUT, reason)))
                    return
                continue
            if isinstance(reply, ChildDied):
                self._take_lost_attempt(attempt, reply)
                return
            heard_at = time.monotonic()
            if self._take_reply(attempt, reply):
                return

    def _take_reply(self, attempt: Attempt, reply: Reply) -> bool:
        """Record a reply and answer the worker; return whether the attempt has ended."""
        decision = self.recorder.record(attempt.trial_id, attempt.token, reply)
        self.on_change()
        if reply.ended is not None:
            return True
        is_written = self.recorder.wait_until_written()
        if isinstance(decision, Continue):
            self.slot.instruct(Instruction(is_recorded=is_written))
        else:
            save = decision.kind is OutcomeKind.STOPPED and is_written
            self.slot.instruct(Instruction(decision.outcome, save, is_written))
        return False

    def _take_lost_attempt(self, attempt: Attempt, died: ChildDied) -> None:
        if died.outcome is not None:
            self._take_reply(attempt, Reply(ended=died.outcome))
        else:
            self.recorder.record_death(attempt.trial_id, died.reason, died.cause)
            self.on_change()

    def _wait_until_written(self) -> bool:
        """Wait until the ledger contains all reports; return False if a stop is requested before that."""
        while not self.recorder.wait_until_written(WAIT_S):
            self.check()
            if self.stop.is_set():
                return False
        return True


class DebuggedSlot:
    """Slot with the methods of `ProcessSlot` that runs trials in this process, for a debugger.

    Changes to the process persist after a trial.
    """

    def __init__(self, orders: JobEncoder, stop: threading.Event) -> None:
        """Create a slot that sets `stop` when the user leaves the debugger with `quit`."""
        self._stop = stop
        self._answer = Instruction()
        store = make_store(orders.store)
        interval_s = orders.checkpoint_seconds
        self._harness = Harness(orders.workload, interval_s, store=store, on_error=self._examine)

    def start(self, order: WorkerJob) -> None:
        """Start a trial with seeded random generators."""
        from trainables.custom.generator_state import seed_generators

        self._answer = Instruction()
        order.scratch.mkdir(parents=True, exist_ok=True)
        seed_generators(order.job.seed)
        self._harness.start(order.job, order.checkpoints)

    def next(self, timeout_s: float) -> Reply:  # noqa: ARG002 - this call cannot be interrupted
        """Continue the trial until its next reply."""
        return self._answer.follow(self._harness)

    def instruct(self, instruction: Instruction) -> None:
        """Store the answer to the last reply of the trial."""
        self._answer = instruction

    def kill(self) -> None:
        """Do nothing, since no trial runs between two calls."""

    def close(self) -> None:
        """Close the worker of the trial."""
        self._harness.stop(save=False)

    def _examine(self, kind: OutcomeKind, error: BaseException) -> None:
        if _post_mortem(kind, error):
            self._stop.set()


def _post_mortem(kind: OutcomeKind, error: BaseException) -> bool:
    """Open the debugger for the exception of a failed trial; return whether the user quits the sweep.

    Every other way to exit the debugger, such as `continue`, resumes the sweep.
    """
    if kind not in SHOWN or error.__traceback__ is None:
        return False
    debugger = pdb.Pdb()
    debugger.message(f"{type(error).__name__}: {error}")
    debugger.message("the trial has failed; `continue` goes on with the next one, `quit` ends the sweep")
    debugger.reset()
    debugger.interaction(None, error.__traceback__)
    return bool(debugger.quitting)
