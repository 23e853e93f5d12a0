"""A driver for tests that computes measurements by a formula, without processes, files or waiting."""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.conductor.messages import Reply, Stop
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.trial_jobs import Attempt
from orchestrator.trials import Outcome, OutcomeKind, Trial
from tests.support.sweeps.workloads import SECONDS_PER_STEP, score
from trainables.protocol import Measurement

DONE = Outcome(OutcomeKind.FINISHED, "ran to its last step")
FAULTS = {
    "diverge": Outcome(OutcomeKind.DIVERGED, "loss was nan"),
    "oom": Outcome(OutcomeKind.OUT_OF_MEMORY, "no room"),
    "raise": Outcome(OutcomeKind.CRASHED, "a mistake"),
}


def measurement(trial: Trial, step: int) -> Measurement:
    """Return what the synthetic workload measures at a step."""
    model = trial.settings["model"]
    value = score(model["x"], model["shift"], step, trial.planned.seed)
    metrics = {"valid/score": value, "valid/cost": float(model["x"])}
    return Measurement(step, step * SECONDS_PER_STEP, metrics)


@dataclass
class Worker:
    """One running attempt, with computed measurements."""

    recorder: Recorder
    attempt: Attempt
    step: int = 0

    def advance(self) -> bool:
        """Send one report; return whether the attempt has ended."""
        train = self.attempt.trial.settings["train"]
        self.step += 1
        if train["fault"] in FAULTS and self.step == train.get("fault_at", 2):
            return self._send(Reply(ended=FAULTS[train["fault"]]))
        if train["fault"] == "infeasible" and self.attempt.trial.settings["model"]["x"] > train["most_x"]:
            return self._send(Reply(ended=Outcome(OutcomeKind.INFEASIBLE, "x is too large")))
        measurement_ = measurement(self.attempt.trial, self.step)
        return self._send(Reply(measurement_, ended=DONE if self.step >= train["steps"] else None))

    def stop(self) -> None:
        """Stop the attempt as an interrupted driver does."""
        self._send(Reply(ended=Outcome(OutcomeKind.STOPPED, "interrupted")))

    def _send(self, reply: Reply) -> bool:
        decision = self.recorder.record(self.attempt.trial_id, self.attempt.token, reply)
        if reply.ended is None and isinstance(decision, Stop):
            self.recorder.record(self.attempt.trial_id, self.attempt.token, Reply(ended=decision.outcome))
            return True
        return reply.ended is not None


def attempts(recorder: Recorder) -> Iterator[Attempt]:
    """Yield the attempts that the recorder hands out until it has none."""
    while (attempt := recorder.next_attempt()) is not None:
        yield attempt


def run_in_turn(recorder: Recorder) -> None:
    """Run one trial after another to the end."""
    for attempt in attempts(recorder):
        worker = Worker(recorder, attempt)
        while not worker.advance():
            pass
