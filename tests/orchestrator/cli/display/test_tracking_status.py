"""The delay of MLflow against the ledger in `status`."""

import time
from pathlib import Path

import pytest

from orchestrator.cli.display.tracking_status import read_tracking_status
from orchestrator.identity import SweepFolder
from orchestrator.tracking.state import TrackingState, write_state


@pytest.mark.parametrize("has_database", [True, False])
def test_deleted_mlflow_database_counts_as_empty(tmp_path: Path, has_database: bool) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    if has_database:
        (tmp_path / "mlflow.db").touch()
    (tmp_path / "sweep").mkdir()
    folder = SweepFolder(tmp_path / "sweep")
    write_state(folder, TrackingState(7, "", time.time(), newest=7, store=uri))
    line = read_tracking_status(folder, uri, newest=7).line("haltsweep sync it", is_locked=False)
    if has_database:
        assert line == f"MLflow: up to date ({uri})"
    else:
        assert line.startswith("MLflow: 7 events behind; its file is missing; it may not have been moved")
        assert line.endswith("\ncatch up with: haltsweep sync it")
