"""Reports of a Ray worker travel together: one that is lost on the way must not be behind a checkpoint."""

from pathlib import Path

import pytest

from orchestrator.conductor.messages import Reply
from orchestrator.execution.ray import trial_actor
from orchestrator.execution.trial.trial_jobs import Attempt, JobEncoder
from orchestrator.trials import OutcomeKind, PlannedTrial, Trial
from tests.support.specs.plans import make_arm
from tests.support.sweeps.workloads import PATH

STEPS = 12


class Worker:
    """A trial actor in this process, with no Ray around it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # No batch ends for its age: what ends it is a checkpoint.
        monkeypatch.setattr(trial_actor, "REPORT_S", 1e9)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        settings = make_arm("arm", steps=STEPS, sleep_s=0.01).settings
        trial = Trial(PlannedTrial("t", "arm", "search", 0, seed=3), {}, settings)
        orders = JobEncoder(PATH, 0.025, 1.0, 0.0, root / "data")
        shown = orders.encode(Attempt(trial, 1, root / "checkpoints", None))
        self._actor = trial_actor.TrialActor({trial_actor.WORKER_JOB: shown})

    def report(self) -> list[Reply]:
        """What one call of `train` brings."""
        result = self._actor.train()
        assert result[trial_actor.DIED] is None
        return list(result[trial_actor.REPLIES])

    def end(self) -> None:
        """End its processes."""
        self._actor.stop()


@pytest.mark.parametrize("lost", range(5))
def test_reports_that_are_lost_with_their_worker_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    first = Worker(tmp_path, monkeypatch)
    heard = [reply for _ in range(lost) for reply in first.report()]
    first.report()  # nobody hears this one: the worker is killed now
    first.end()
    second = Worker(tmp_path, monkeypatch)
    while not heard[-1:] or heard[-1].ended is None:
        heard += second.report()
    second.end()
    ended = heard[-1].ended
    assert ended is not None
    assert (ended.kind, ended.reason) == (OutcomeKind.FINISHED, f"ran to step {STEPS}")
    assert {each.measurement.step for each in heard if each.measurement} == set(range(1, STEPS + 1))


def test_checkpoints_are_made_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(tmp_path, monkeypatch)
    heard: list[Reply] = []
    while not heard or heard[-1].ended is None:
        heard += worker.report()
    worker.end()
    saved = [each.checkpoint for each in heard if each.checkpoint]
    assert len(saved) > 1
    assert saved[-1] == STEPS
    assert [each.measurement.step for each in heard if each.measurement] == list(range(1, STEPS + 1))
