"""How far MLflow is behind the ledger, as `status` tells it."""

import time
from pathlib import Path

import pytest

from orchestrator.cli.tracked import tracked
from orchestrator.drivers.launch_folder import Setup
from orchestrator.identity import SweepFolder
from orchestrator.tracking.state import TrackingState, write_state


@pytest.mark.parametrize("there", [True, False])
def test_a_database_that_is_gone_has_nothing(tmp_path: Path, there: bool) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    if there:
        (tmp_path / "mlflow.db").touch()
    (tmp_path / "sweep").mkdir()
    folder = SweepFolder(tmp_path / "sweep")
    write_state(folder, TrackingState(7, "", time.time(), newest=7, store=uri))
    line = tracked(folder, Setup(tmp_path, tracking_uri=uri), newest=7).line("haltsweep sync it", held=False)
    if there:
        assert line == f"MLflow: has everything ({uri})"
    else:
        assert line.startswith("MLflow: 7 events behind; its file is gone, or was left behind when")
        assert line.endswith("\ncatch up with: haltsweep sync it")
