"""Runs a sweep in this process, one trial at a time: for debuggers, notebooks and fast tests."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.conductor.messages import Continue, Reply, Verdict
from orchestrator.conductor.recorder import Attempt, Recorder
from orchestrator.drivers.worker import Harness
from orchestrator.trials import OutcomeKind

INTERRUPTED = "the sweep was asked to stop"


def run_inline(
    recorder: Recorder,
    workload: str,
    *,
    data_dir: Path,
    checkpoint_seconds: float = 30.0,
    silence_s: float | None = None,
    on_change: Callable[[], None] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Run until the sweep is finished or drained.

    Once `stop` is set, the running trial is saved at its next report and told stopped.
    `on_change` is called after everything that is recorded. A trial that reports nothing for `silence_s`
    seconds has timed out, if it can be reached.
    """
    stop = stop or threading.Event()
    harness = Harness(workload, checkpoint_seconds)
    run = _Run(recorder, harness, stop, on_change or (lambda: None), silence_s)
    while not stop.is_set() and (attempt := recorder.ask()) is not None:
        run.changed()
        run.trial(attempt, data_dir)
    if stop.is_set():
        recorder.drain(INTERRUPTED)
    assert recorder.finished or recorder.draining, "with nothing running, something must be left to hand out"


@dataclass(frozen=True)
class _Run:
    recorder: Recorder
    harness: Harness
    stop: threading.Event
    changed: Callable[[], None]
    silence_s: float | None

    def trial(self, attempt: Attempt, data_dir: Path) -> None:
        """One attempt, from start to its end or stop."""
        self.harness.start(attempt.job(data_dir), attempt.checkpoints)
        verdict: Verdict = Continue()
        while isinstance(verdict, Continue):
            reply = self.harness.advance(self.silence_s)
            if self.stop.is_set():
                self.recorder.drain(INTERRUPTED)
            verdict = self.recorder.take(attempt.trial_id, attempt.token, reply)
            self.changed()
            if reply.ended is not None:
                return
        saved = self.harness.stop(save=verdict.kind is OutcomeKind.STOPPED)
        ending = Reply(checkpoint=saved.checkpoint, ended=verdict.outcome)
        self.recorder.take(attempt.trial_id, attempt.token, ending)
        self.changed()
