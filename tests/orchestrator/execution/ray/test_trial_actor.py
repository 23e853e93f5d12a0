"""A Ray worker sends reports in batches; a lost batch must not be older than a stored checkpoint."""

import pytest

from orchestrator.execution.ray import trial_actor
from orchestrator.execution.trial.trial_jobs import Attempt, JobEncoder
from orchestrator.trials import OutcomeKind, PlannedTrial, Trial
from tests.support.specs.plans import make_arm
from tests.support.sweeps.workloads import PATH

STEPS = 12


class ActorWorker:
    """A trial actor in this process, without Ray."""

    def __init__(self, root, monkeypatch):
        # Age ends no batch here; only a checkpoint ends a batch.
        monkeypatch.setattr(trial_actor, "REPORT_INTERVAL_S", 1e9)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        settings = make_arm("arm", steps=STEPS, sleep_s=0.01).settings
        trial = Trial(PlannedTrial("t", "arm", "search", 0, seed=3), {}, settings)
        encoder = JobEncoder(PATH, 0.025, 1.0, 0.0, root / "data")
        encoded_job = encoder.encode(Attempt(trial, 1, root / "checkpoints", None))
        self._actor = trial_actor.TrialActor({trial_actor.WORKER_JOB_KEY: encoded_job})

    def report(self):
        """Return the replies of one call of `train`."""
        result = self._actor.train()
        assert result[trial_actor.DEATH_KEY] is None
        return list(result[trial_actor.REPLIES_KEY])

    def end(self):
        """End the processes of the actor."""
        self._actor.stop()


@pytest.mark.parametrize("num_reports", [0, 2])
def test_lost_reports_are_sent_again_by_the_next_worker(tmp_path, monkeypatch, num_reports):
    first_worker = ActorWorker(tmp_path, monkeypatch)
    replies = [reply for _ in range(num_reports) for reply in first_worker.report()]
    first_worker.report()  # this report is lost, because the worker is killed
    first_worker.end()
    second_worker = ActorWorker(tmp_path, monkeypatch)
    while not replies[-1:] or replies[-1].ended is None:
        replies += second_worker.report()
    second_worker.end()
    last_end = replies[-1].ended
    assert (last_end.kind, str(STEPS) in last_end.reason) == (OutcomeKind.FINISHED, True)
    assert {reply.measurement.step for reply in replies if reply.measurement} == set(range(1, STEPS + 1))


def test_batched_reports_do_not_prevent_checkpoints(tmp_path, monkeypatch):
    worker = ActorWorker(tmp_path, monkeypatch)
    replies = []
    while not replies or replies[-1].ended is None:
        replies += worker.report()
    worker.end()
    checkpoint_steps = [reply.checkpoint for reply in replies if reply.checkpoint]
    assert len(checkpoint_steps) > 1
    assert checkpoint_steps[-1] == STEPS
    assert [reply.measurement.step for reply in replies if reply.measurement] == list(range(1, STEPS + 1))
