"""A sweep ends well without its MLflow server, and `sync` writes MLflow later."""

import pytest

from orchestrator.ledger.store import Ledger
from orchestrator.spec.section import Resources
from orchestrator.tracking.sync import sync
from tests.faults.kills.chaos import SweepSite, check_log, launch_or_resume
from tests.support.mlflow.mlflow_db import runs
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan

CLOSED_URL = "http://127.0.0.1:1"
"""No server answers at this port."""


def make_sweep_plan():
    arms = [make_arm("one", tally=True), make_arm("two", tally=True)]
    return make_plan(
        arms, trials_per_arm=4, seeds=(7,), resources=Resources(checkpoint_seconds=AT_EVERY_REPORT_S)
    )


@pytest.mark.slow
def test_sweep_does_not_wait_for_mlflow_and_sync_catches_up(tmp_path):
    place = SweepSite(tmp_path, make_sweep_plan(), CLOSED_URL)
    finish = launch_or_resume(place)
    check_log(place.events(), place.plan)
    assert finish.exit_code == 0, "an outage of MLflow must not fail a trial"
    assert CLOSED_URL in finish.untracked
    assert place.folder.records.exists(), "the Parquet files must not wait for MLflow"
    database = tmp_path / "mlflow.db"
    with Ledger.open(place.folder.ledger_url, place.plan.name) as ledger:
        first_sync = sync(place.folder, ledger, f"sqlite:///{database}")
        second_sync = sync(place.folder, ledger, f"sqlite:///{database}")
    mlflow_runs = runs(database, place.plan.name)
    assert (first_sync.total > 0, second_sync.total) == (True, 0)
    assert {run.status for run in mlflow_runs.values()} == {"FINISHED"}
    assert sum(key.startswith("trial/") for key in mlflow_runs) == len(place.plan.trials)
