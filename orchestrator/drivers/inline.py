"""Runs a sweep in this process, one trial at a time: for debuggers, notebooks and fast tests."""

import pdb  # noqa: T100 - a debugger is what is asked for
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.conductor.messages import Continue, Reply, Stop, TrialDecision
from orchestrator.drivers.checkpoint_stores import store_at
from orchestrator.drivers.jobs import Attempt
from orchestrator.drivers.output import PythonOutput
from orchestrator.drivers.packed import PackedJob, PackedTrials
from orchestrator.drivers.recorder import Recorder
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
    silence_s: float | None = None,
    checkpoints: str | None = None,
    on_change: Callable[[], None] | None = None,
    stop: threading.Event | None = None,
    check: Callable[[], None] | None = None,
    cpus: float = 1.0,
    pack: int = 1,
    debug: bool = False,
) -> None:
    """Run until the sweep is finished or drained.

    Once `stop` is set, the running trial is saved at its next report and ends as stopped.
    `checkpoints` is the URI of a store of them, if there is one.
    `on_change` is called after everything that is recorded; `check` often, and what it raises ends the run at
    once. A trial that is silent for longer than `silence_s` has timed out, if it can be reached.
    PyTorch, where it is loaded, uses one thread for each of `cpus`. As many as `pack` confirm seeds of an arm
    take their steps together. `debug` opens Python's debugger where a trial fails, and runs each alone.
    """
    stop = stop or threading.Event()

    def examine(kind: OutcomeKind, error: BaseException) -> None:
        if debug and _post_mortem(kind, error):
            stop.set()

    store, output = store_at(checkpoints), PythonOutput()
    harness = Harness(workload, checkpoint_seconds, store=store, output=output, on_error=examine)
    run = _InlineRun(recorder, harness, stop, on_change or (lambda: None), silence_s, check or (lambda: None))
    threads = partial(torch_threads, threads_of(cpus))
    packed = partial(PackedTrials, workload, checkpoint_seconds, store=checkpoints, threads=threads)
    # A trial that ends its process so would end the sweep, and with 0 as if all had gone well.
    with threads(), _let_go(harness), exits_raised():
        while not stop.is_set() and (attempt := recorder.ask()) is not None:
            run.changed()
            attempts = [attempt, *others_beside(recorder, attempt, 1 if debug else pack)]
            if len(attempts) > 1:
                run.pack(packed(), attempts, data_dir)
            else:
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


def others_beside(recorder: Recorder, attempt: Attempt, most: int) -> Iterator[Attempt]:
    """Seeds to be trained with `attempt`, so many with it, as far as there are some."""
    for _ in range(most - 1):
        if (other := recorder.ask_beside(attempt.trial_id)) is None:
            return
        yield other


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
    silence_s: float | None
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
        while isinstance(decision, Continue):
            reply = self.harness.advance(self.silence_s, heard=self.recorder.written())
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

    def pack(self, trials: PackedTrials, attempts: Sequence[Attempt], data_dir: Path) -> None:
        """Attempts that take their steps together, until each has ended or stopped."""
        left = dict(enumerate(attempts))
        if not self._wait_until_written():
            outcome = Outcome(OutcomeKind.STOPPED, INTERRUPTED)
            for attempt in attempts:
                self.recorder.take(attempt.trial_id, attempt.token, Reply(ended=outcome))
            return
        for attempt in attempts:
            self.recorder.began(attempt.trial_id)
        jobs = [PackedJob(each.job(data_dir), each.checkpoints, each.log) for each in attempts]
        with trials.running(jobs):
            while left:
                came = trials.next(WAIT_S)
                self.check()
                if self.stop.is_set():
                    self.recorder.drain(INTERRUPTED)
                if came is None:
                    continue
                number, reply = came
                decision = self.recorder.take(left[number].trial_id, left[number].token, reply)
                self.changed()
                if reply.ended is not None:
                    del left[number]
                    continue
                written = self.recorder.written()
                if isinstance(decision, Stop):
                    save = decision.kind is OutcomeKind.STOPPED and written
                    trials.answer(number, stop=decision.outcome, save=save, heard=written)
                else:
                    trials.answer(number, heard=written)

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
