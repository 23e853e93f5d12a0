"""Runs a sweep in this process, one trial at a time: for debuggers, notebooks and fast tests."""

import pdb  # noqa: T100 - a debugger is what is asked for
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from orchestrator.conductor.messages import Continue, Reply, TrialDecision
from orchestrator.drivers.checkpoint_stores import store_at
from orchestrator.drivers.jobs import Attempt
from orchestrator.drivers.output import PythonOutput
from orchestrator.drivers.recorder import Recorder
from orchestrator.drivers.watchdog import SilenceLimit
from orchestrator.drivers.worker import Harness
from orchestrator.spec.section import threads_of
from orchestrator.trials import Outcome, OutcomeKind
from trainables.extensions import exits_raised

INTERRUPTED = "the sweep was asked to stop"
SHOWN = frozenset({OutcomeKind.CRASHED, OutcomeKind.OUT_OF_MEMORY})
"""Outcomes that an exception of the trial's own code leads to, other than by its design."""
WAIT_S = 0.2
"""Between two looks whether a ledger that is away has come back."""


def run_inline(
    recorder: Recorder,
    workload: str,
    *,
    data_dir: Path,
    checkpoint_seconds: float = 30.0,
    silence: SilenceLimit | None = None,
    checkpoints: str | None = None,
    on_change: Callable[[], None] | None = None,
    stop: threading.Event | None = None,
    check: Callable[[], None] | None = None,
    cpus: float = 1.0,
    debug: bool = False,
) -> None:
    """Run until the sweep is finished or drained.

    Once `stop` is set, the running trial is saved at its next report and ends as stopped.
    `checkpoints` is the URI of a store of them, if there is one.
    `on_change` is called after everything that is recorded; `check` often, and what it raises ends the run at
    once. A trial that is silent for longer than `silence` allows has timed out, if it can be reached.
    PyTorch, where it is loaded, uses one thread for each of `cpus`. `debug` opens Python's debugger where a
    trial fails.
    """
    stop = stop or threading.Event()

    def examine(kind: OutcomeKind, error: BaseException) -> None:
        if debug and _post_mortem(kind, error):
            stop.set()

    store, output = store_at(checkpoints), PythonOutput()
    harness = Harness(workload, checkpoint_seconds, store=store, output=output, on_error=examine)
    run = _InlineRun(recorder, harness, stop, on_change or (lambda: None), silence, check or (lambda: None))
    # A trial that ends its process so would end the sweep, and with 0 as if all had gone well.
    with torch_threads(threads_of(cpus)), _let_go(harness), exits_raised():
        while not stop.is_set() and (attempt := recorder.ask()) is not None:
            run.changed()
            run.trial(attempt, data_dir)
    if stop.is_set():
        recorder.drain(INTERRUPTED)
    assert recorder.finished or recorder.draining, "with nothing running, something must be left to hand out"


@contextmanager
def _let_go(harness: Harness) -> Iterator[None]:
    """Whatever ends the run: nothing that the running trial has set for this process stays."""
    try:
        yield
    finally:
        harness.stop(save=False)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """As workers of Ray have; afterwards this process has as many as before."""
    if "torch" not in sys.modules:  # a trainable that needs none must not pay for it
        yield
        return
    from trainables.threads import cpu_threads

    with cpu_threads(count):
        yield


@dataclass(frozen=True)
class _InlineRun:
    recorder: Recorder
    harness: Harness
    stop: threading.Event
    changed: Callable[[], None]
    silence: SilenceLimit | None
    check: Callable[[], None]

    def trial(self, attempt: Attempt, data_dir: Path) -> None:
        """One attempt, from start to its end or stop."""
        if not self._wait_until_written():
            outcome = Outcome(OutcomeKind.STOPPED, INTERRUPTED)
            self.recorder.take(attempt.trial_id, attempt.token, Reply(ended=outcome))
            return
        self.recorder.began(attempt.trial_id)
        self.harness.start(attempt.job(data_dir), attempt.checkpoints, attempt.log)
        decision: TrialDecision = Continue()
        longest_s = 0.0
        while isinstance(decision, Continue):
            limit_s = None if self.silence is None else self.silence.limit_s(longest_s)
            began = time.monotonic()
            reply = self.harness.advance(limit_s, heard=self.recorder.written())
            longest_s = max(longest_s, time.monotonic() - began)
            self.check()
            if self.stop.is_set():
                self.recorder.drain(INTERRUPTED)
            decision = self.recorder.take(attempt.trial_id, attempt.token, reply)
            self.changed()
            if reply.ended is not None:
                return
        save = decision.kind is OutcomeKind.STOPPED and self.recorder.written()
        saved = self.harness.stop(save=save)
        ending = Reply(checkpoint=saved.checkpoint, ended=decision.outcome)
        self.recorder.take(attempt.trial_id, attempt.token, ending)
        self.changed()

    def _wait_until_written(self) -> bool:
        """Nothing is started before; False if the sweep was asked to stop meanwhile."""
        while not self.recorder.written(WAIT_S):
            self.check()
            if self.stop.is_set():
                return False
        return True


def _post_mortem(kind: OutcomeKind, error: BaseException) -> bool:
    """Let somebody look at the frames of `error`, which ends a trial as `kind`; whether they gave `quit`.

    Anything else that leaves the debugger, such as `continue`, lets the sweep go on.
    """
    if kind not in SHOWN or error.__traceback__ is None:
        return False
    # The terminal itself: what is typed and shown here is no output of the trial.
    with redirect_stdout(sys.__stdout__):
        debugger = pdb.Pdb()
        debugger.message(f"{type(error).__name__}: {error}")
        debugger.message("the trial has failed; `continue` goes on with the next one, `quit` ends the sweep")
        debugger.reset()
        debugger.interaction(None, error.__traceback__)
        return bool(debugger.quitting)
