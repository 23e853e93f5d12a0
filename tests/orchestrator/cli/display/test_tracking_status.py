"""How far MLflow is behind the ledger, as `status` tells it."""

import time
from pathlib import Path

import pytest

from orchestrator.cli.display.tracking_status import read_tracking_status, tracking_store
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.identity import SweepFolder
from orchestrator.tracking.state import TrackingState, write_state


@pytest.mark.parametrize("there", [True, False])
def test_a_deleted_mlflow_database_counts_as_empty(tmp_path: Path, there: bool) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    if there:
        (tmp_path / "mlflow.db").touch()
    (tmp_path / "sweep").mkdir()
    folder = SweepFolder(tmp_path / "sweep")
    write_state(folder, TrackingState(7, "", time.time(), newest=7, store=uri))
    line = read_tracking_status(folder, uri, newest=7).line("haltsweep sync it", is_locked=False)
    if there:
        assert line == f"MLflow: has everything ({uri})"
    else:
        assert line.startswith("MLflow: 7 events behind; its file is gone, or was left behind when")
        assert line.endswith("\ncatch up with: haltsweep sync it")


def test_the_store_of_the_last_sync_is_shown(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    folder, without = SweepFolder(tmp_path / "sweep"), Setup(tmp_path)
    assert tracking_store(folder, without) is None
    write_state(folder, TrackingState(7, "", time.time(), newest=7, store="http://here"))
    assert tracking_store(folder, without) == "http://here"
    assert tracking_store(folder, Setup(tmp_path, tracking_uri="http://there")) == "http://there"
