"""`haltsweep remove`: confirmation, deleted and preserved files, refusals."""

import io
import os
import pty
import re
import shutil
import sqlite3
import subprocess
import time
from dataclasses import replace

import pytest

from orchestrator.execution.sweep.launch_folder import Setup, create_sweep_folder, read_setup
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.ledger.summary import read_summaries
from orchestrator.tracking.sync import sync
from tests.orchestrator.ledger.conftest import postgres_server  # noqa: F401 - a fixture
from tests.support.processes.commands import COMMAND, PATIENCE_S, tree
from tests.support.specs.plans import make_plan
from tests.support.stores.postgres import postgres_url
from tests.support.sweeps.histories import DEAD, history

PLAN = make_plan(2, trials_per_arm=1, seeds=())


def create_sweep(tmp_path, name="synthetic", storage=None, tracking=None):
    """Create a finished sweep."""
    folder = SweepFolder(tmp_path / "runs" / name)
    setup = Setup(tmp_path / "data", storage=storage, tracking_uri=tracking)
    plan = replace(PLAN, name=name)
    create_sweep_folder(plan, folder, "", {}, setup)
    with Ledger.open(setup.ledger_url(folder), name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append(list(history(plan)), lease)
        ledger.release(lease)
        if tracking:
            sync(folder, ledger, tracking)
    return folder


def test_remove_requires_the_yes_option_without_a_terminal(haltsweep, tmp_path, monkeypatch):
    folder = create_sweep(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    files_before = tree(tmp_path)
    result = haltsweep("remove", "synthetic")
    assert result.code == 2
    assert "--yes" in result.err
    assert tree(tmp_path) == files_before
    result = haltsweep("remove", "synthetic", "--yes")
    assert (result.code, result.out, result.err) == (0, "synthetic: removed\n", "")
    assert not list(folder.root.parent.iterdir())


@pytest.mark.parametrize(("answer", "code"), [(b"\n", 1), (b"y\n", 0)])
def test_remove_lists_the_files_and_asks_on_a_terminal(tmp_path, answer, code):
    folder = create_sweep(tmp_path)
    controller, terminal = pty.openpty()
    command = [COMMAND, "remove", "synthetic", "--runs", str(folder.root.parent)]
    with subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(terminal)
        os.write(controller, answer)
        output_bytes, _ = process.communicate(timeout=PATIENCE_S)
    os.close(controller)
    assert process.returncode == code
    assert f"folder {folder.root}: 7 files, " in output_bytes.decode()
    assert folder.root.exists() is (code == 1)


def test_remove_refuses_a_running_sweep(haltsweep, tmp_path):
    folder = create_sweep(tmp_path)
    with Ledger.open(folder.ledger_url, "synthetic") as ledger:
        lease = ledger.claim(Holder.current())
        result = haltsweep("remove", "synthetic", "--yes")
        assert (result.code, "`haltsweep stop synthetic`" in result.err) == (2, True)
        assert folder.plan.exists()
        ledger.release(lease)
    assert haltsweep("remove", "synthetic", "--yes").code == 0


def test_remove_requires_take_over_if_the_holder_may_be_alive(haltsweep, tmp_path):
    folder = create_sweep(tmp_path)
    with Ledger.open(folder.ledger_url, "synthetic", clock=lambda: time.time() - 3600) as ledger:
        ledger.claim(DEAD)
    result = haltsweep("remove", "synthetic", "--yes")
    assert result.code == 2
    assert folder.plan.exists()
    assert haltsweep("remove", "synthetic", "--yes", "--take-over").code == 0
    assert not folder.root.exists()


def test_remove_preserves_other_sweeps_of_the_database(haltsweep, tmp_path, request):
    with postgres_url(request) as postgres:
        for url in (f"sqlite:///{tmp_path / 'team.db'}", postgres):
            for name in ("gone", "kept"):
                create_sweep(tmp_path, name, url)
            assert haltsweep("remove", "gone", "--yes").code == 0
            assert [summary.name for summary in read_summaries(url)] == ["kept"]
            assert haltsweep("remove", "kept", "--yes").code == 0


def test_remove_of_a_copy_preserves_the_ledger_of_its_original(haltsweep, tmp_path):
    url = f"sqlite:///{tmp_path / 'team.db'}"
    folder = create_sweep(tmp_path, storage=url)
    shutil.copytree(tmp_path / "runs", tmp_path / "copied")
    result = haltsweep("remove", "synthetic", "--yes", "--runs", str(tmp_path / "copied"))
    assert result.code == 2
    assert re.search(f"{folder.root}.*{url}", result.err)
    assert [summary.name for summary in read_summaries(url)] == ["synthetic"]
    shutil.rmtree(folder.root)
    assert haltsweep("remove", "synthetic", "--yes", "--runs", str(tmp_path / "copied")).code == 0
    assert read_summaries(url) == []


def active_run_experiments(database):
    """Return the experiments of the active MLflow runs."""
    with sqlite3.connect(database) as connection:
        query = (
            "SELECT e.name FROM runs r JOIN experiments e USING (experiment_id) "
            "WHERE r.lifecycle_stage = 'active'"
        )
        return sorted(name for (name,) in connection.execute(query))


@pytest.mark.slow
def test_mlflow_option_deletes_only_the_runs_of_the_sweep(haltsweep, tmp_path):
    database = tmp_path / "runs" / "mlflow.db"
    uri = f"sqlite:///{database}"
    for name in ("one", "two", "three"):
        create_sweep(tmp_path, name, tracking=uri)
    assert haltsweep("remove", "one", "--yes").code == 0
    assert {"one", "two", "three"} == set(active_run_experiments(database))
    assert (tmp_path / "runs" / "mlartifacts" / "two").exists()
    assert haltsweep("remove", "two", "--yes", "--mlflow").code == 0
    assert {"one", "three"} == set(active_run_experiments(database))
    assert not (tmp_path / "runs" / "mlartifacts" / "two").exists()
    assert (tmp_path / "runs" / "mlartifacts" / "three").exists()
    create_sweep(tmp_path, "two", tracking=uri)
    assert "two" in active_run_experiments(database)


@pytest.mark.slow
def test_unreachable_mlflow_preserves_the_sweep(haltsweep, tmp_path):
    folder = create_sweep(tmp_path)
    result = haltsweep("remove", "synthetic", "--yes", "--mlflow", "--tracking", "http://127.0.0.1:9")
    assert result.code == 1
    assert "http://127.0.0.1:9" in result.err
    assert read_setup(folder)
    assert haltsweep("status", "synthetic").code == 0


def test_remove_deletes_a_damaged_sweep(haltsweep, tmp_path):
    for name, damaged_file in (("a", "plan.json"), ("b", "launch.json"), ("c", "ledger.db")):
        folder = create_sweep(tmp_path, name)
        (folder.root / damaged_file).write_bytes(b"no database at all" * 1000)
        assert haltsweep("remove", name, "--yes").code == 0
        assert not folder.root.exists()


def test_remove_does_not_follow_links(haltsweep, tmp_path):
    folder = create_sweep(tmp_path)
    linked_folder = tmp_path / "precious"
    (linked_folder / "below").mkdir(parents=True)
    (linked_folder / "file").write_text("kept")
    (folder.root / "link").symlink_to(linked_folder)
    (folder.root / "checkpoints").symlink_to(linked_folder)
    os.mkfifo(folder.root / "pipe")
    assert haltsweep("remove", "synthetic", "--yes").code == 0
    assert (linked_folder / "file").read_text() == "kept"
    assert (linked_folder / "below").is_dir()


@pytest.mark.parametrize("name", ["sintetic", "holidays", "..", ""])
def test_remove_refuses_a_name_without_a_sweep(haltsweep, tmp_path, name):
    create_sweep(tmp_path)
    (tmp_path / "runs" / "holidays").mkdir()
    files_before = tree(tmp_path)
    result = haltsweep("remove", name, "--yes")
    assert result.code == 2
    assert repr(name) in result.err
    assert tree(tmp_path) == files_before
