"""`verify` and `remove` while the checkpoint store does not answer."""

import json

import pytest

from orchestrator.execution.checkpoints import checkpoint_stores
from orchestrator.execution.checkpoints.checkpoint_stores import ExternalStore
from tests.support.processes.commands import tree
from tests.support.specs.plans import make_plan
from tests.support.stores.failing_store import AWAY, PROTOCOL
from tests.support.sweeps.finished import finished
from trainables.protocol import Measurement


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Return the folder of a store with a checkpoint of a finished sweep."""
    monkeypatch.setattr(checkpoint_stores, "COMMAND_PATIENCE_S", 0.0)
    folder = tmp_path / "store"
    folder.mkdir()
    uri = f"{PROTOCOL}://{folder}/sweep"
    plan = make_plan(1)
    finished(tmp_path, plan, checkpoints=uri)
    ExternalStore(uri).write(
        tmp_path / plan.trials[0].trial_id, Measurement(1, 0.5, {}), lambda path: (path / "w").touch()
    )
    return folder


def test_verify_reports_that_the_checkpoints_could_not_be_checked(haltsweep, store):
    def check_checkpoints():
        result = haltsweep("verify", "synthetic", "--json")
        assert result.code == 2, "the synthetic sweep has no data to check"
        return next(row for row in json.loads(result.out)["findings"] if row["what"] == "checkpoints")

    assert check_checkpoints()["verdict"] == "sound"
    (store / AWAY).write_text("ConnectionError")
    assert check_checkpoints()["verdict"] == "unknown"
    assert "503 slow down" in check_checkpoints()["detail"]


def test_remove_deletes_nothing_before_the_store_answers(haltsweep, store, tmp_path):
    (store / AWAY).write_text("ConnectionError")
    files_before = {name for name in tree(tmp_path) if "ledger.db" not in name}
    result = haltsweep("remove", "synthetic", "--yes")
    assert result.code == 2
    assert len(result.err.strip().splitlines()) == 1
    assert files_before <= set(tree(tmp_path))
    (store / AWAY).unlink()
    assert haltsweep("remove", "synthetic", "--yes").code == 0
    assert list(store.iterdir()) == []
    assert not (tmp_path / "runs" / "synthetic").exists()
