"""An MLflow server that is away: the sweep ends well, and `sync` writes MLflow later."""

import pytest

from orchestrator.ledger.store import Ledger
from orchestrator.spec.section import Resources
from orchestrator.tracking.sync import sync
from tests.faults.kills.chaos import Place, check_log, go
from tests.support.mlflow.mlflow_db import runs
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan

NOBODY = "http://127.0.0.1:1"
"""No server answers at this port."""


def sweep():
    arms = [make_arm("one", tally=True), make_arm("two", tally=True)]
    return make_plan(
        arms, trials_per_arm=4, seeds=(7,), resources=Resources(checkpoint_seconds=AT_EVERY_REPORT_S)
    )


@pytest.mark.slow
def test_a_sweep_does_not_wait_for_mlflow_and_sync_catches_up(tmp_path):
    place = Place(tmp_path, sweep(), NOBODY)
    finish = go(place)
    check_log(place.events(), place.plan)
    assert finish.exit_code == 0, "an outage of MLflow is no failure of a trial"
    assert NOBODY in finish.untracked
    assert place.folder.records.exists(), "Parquet does not wait for MLflow either"
    database = tmp_path / "mlflow.db"
    with Ledger.open(place.folder.ledger_url, place.plan.name) as ledger:
        written = sync(place.folder, ledger, f"sqlite:///{database}")
        again = sync(place.folder, ledger, f"sqlite:///{database}")
    seen = runs(database, place.plan.name)
    assert (written.total > 0, again.total) == (True, 0)
    assert {run.status for run in seen.values()} == {"FINISHED"}
    assert sum(key.startswith("trial/") for key in seen) == len(place.plan.trials)
