"""After kills of a sweep that writes MLflow, each trial has one run with every step once, and none is
RUNNING."""

import random

import pytest

from orchestrator.ledger.events import EventKind
from orchestrator.spec.section import Resources
from tests.faults.kills.chaos import KillableSweep, check_log
from tests.support.mlflow.mlflow_db import runs
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan

KILLS = 2
MOMENTS = 20
"""Number of moments of a session of this sweep before the kill."""


@pytest.mark.slow
def test_mlflow_matches_the_ledger_after_kills(tmp_path):
    arms = [make_arm("one", tally=True), make_arm("two", tally=True, fault="raise", fault_at=3)]
    plan = make_plan(
        arms, trials_per_arm=3, seeds=(7, 8), resources=Resources(checkpoint_seconds=AT_EVERY_REPORT_S)
    )
    database = tmp_path / "runs" / "mlflow.db"
    sweep = KillableSweep(tmp_path, plan, f"sqlite:///{database}")
    stream = random.Random(0)
    for _ in range(KILLS):
        assert not sweep.run_session(die_at=stream.randint(1, MOMENTS))
    assert sweep.run_session()
    events = sweep.events()
    check_log(events, plan)

    mlflow_runs = runs(database, plan.name)
    trials = {key.split("/")[2]: run for key, run in mlflow_runs.items() if key.startswith("trial/")}
    assert trials.keys() == {trial.trial_id for trial in plan.trials}, "each trial must have one run"
    assert {run.status for run in mlflow_runs.values()} == {"FINISHED", "FAILED"}
    for trial_id, run in trials.items():
        expected = sorted(
            (metric, event.payload["step"], value)
            for event in events
            if event.kind is EventKind.MEASURED and event.trial_id == trial_id
            for metric, value in event.payload["metrics"].items()
        )
        points = [(metric, step, value) for metric, step, _, value in run.points if "/" in metric]
        names = {metric for metric, *_ in expected}
        assert [point for point in points if point[0] in names] == expected
        has_failed = run.tags["haltsweep.arm"] == "two"
        assert (run.status, run.tags["haltsweep.outcome"]) == (
            ("FAILED", "crashed") if has_failed else ("FINISHED", "finished")
        )
