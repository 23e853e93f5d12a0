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
    status = read_tracking_status(folder, uri, newest=7)
    assert (status.behind, bool(status.error)) == ((0, False) if has_database else (7, True))
    line = status.line("haltsweep sync it", is_locked=False)
    assert line.endswith(": haltsweep sync it") == (not has_database)
    assert f"({uri})" in line
