"""`haltsweep remove`: what is shown and asked, what goes, what stays, what is refused."""

import io
import os
import pty
import shutil
import sqlite3
import subprocess
import time
from dataclasses import replace

import pytest

from orchestrator.errors import InputError
from orchestrator.execution.sweep import launch_folder, removal
from orchestrator.execution.sweep.launch_folder import Setup, publish, read_setup
from orchestrator.files.file_digests import seal_json
from orchestrator.files.json_values import to_json_values
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.ledger.summary import summaries
from orchestrator.tracking.state import projection_lock
from orchestrator.tracking.sync import sync
from tests.orchestrator.ledger.conftest import postgres_server  # noqa: F401 - a fixture
from tests.support.processes.commands import COMMAND, PATIENCE_S, tree
from tests.support.specs.plans import make_plan
from tests.support.stores.postgres import postgres_url
from tests.support.sweeps.histories import DEAD, history

PLAN = make_plan(2, trials_per_arm=1, seeds=())


def make(tmp_path, name="synthetic", storage=None, tracking=None):
    """A finished sweep."""
    folder = SweepFolder(tmp_path / "runs" / name)
    setup = Setup(tmp_path / "data", storage=storage, tracking_uri=tracking)
    plan = replace(PLAN, name=name)
    publish(plan, folder, "", {}, setup)
    with Ledger.open(setup.ledger_url(folder), name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append(list(history(plan)), lease)
        ledger.release(lease)
        if tracking:
            sync(folder, ledger, tracking)
    return folder


def test_without_a_terminal_somebody_must_have_agreed(haltsweep, tmp_path, monkeypatch):
    folder = make(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    before = tree(tmp_path)
    shown = haltsweep("remove", "synthetic")
    assert shown.code == 2
    assert "no terminal to ask on; give --yes if you are sure" in shown.err
    assert tree(tmp_path) == before
    shown = haltsweep("remove", "synthetic", "--yes")
    assert (shown.code, shown.out, shown.err) == (0, "synthetic: removed\n", "")
    assert not list(folder.root.parent.iterdir())


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"\n", 1), (b"y\n", 0)])
def test_on_a_terminal_it_shows_what_goes_and_asks(tmp_path, answer, code):
    folder = make(tmp_path)
    controller, terminal = pty.openpty()
    command = [COMMAND, "remove", "synthetic", "--runs", str(folder.root.parent)]
    with subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(terminal)
        os.write(controller, answer)
        out, _ = process.communicate(timeout=PATIENCE_S)
    os.close(controller)
    assert process.returncode == code
    shown = out.decode()
    assert f"folder {folder.root}: 7 files, " in shown
    assert "nothing in MLflow; for that give --mlflow" in shown
    assert folder.root.exists() is (code == 1)
    assert ("nothing was deleted" in shown) is (code == 1)


def test_a_sweep_that_somebody_runs_is_refused(haltsweep, tmp_path):
    folder = make(tmp_path)
    with Ledger.open(folder.ledger_url, "synthetic") as ledger:
        lease = ledger.claim(Holder.current())
        before = {name: digest for name, digest in tree(tmp_path).items() if "ledger" not in name}
        shown = haltsweep("remove", "synthetic", "--yes")
        assert shown.code == 2
        assert "must have one holder at a time" in shown.err
        assert "`haltsweep stop synthetic`" in shown.err
        after = {name: digest for name, digest in tree(tmp_path).items() if "ledger" not in name}
        assert after.keys() - before.keys() <= {"runs/synthetic/.tracking.lock"}
        ledger.release(lease)
    assert haltsweep("remove", "synthetic", "--yes").code == 0


def test_who_runs_a_sweep_is_told_though_its_tracker_is_at_work_too(haltsweep, tmp_path):
    folder = make(tmp_path)
    with Ledger.open(folder.ledger_url, "synthetic") as ledger, projection_lock(folder.root, 1.0):
        lease = ledger.claim(Holder.current())
        shown = haltsweep("remove", "synthetic", "--yes")
        assert shown.code == 2
        assert "must have one holder at a time" in shown.err
        ledger.release(lease)


def test_a_sweep_whose_holder_may_be_alive_elsewhere_is_removed_only_if_taken_over(haltsweep, tmp_path):
    folder = make(tmp_path)
    with Ledger.open(folder.ledger_url, "synthetic", clock=lambda: time.time() - 3600) as ledger:
        ledger.claim(DEAD)
    shown = haltsweep("remove", "synthetic", "--yes")
    assert shown.code == 2
    assert "its last sign of life was 3600 s ago" in " ".join(shown.err.split())
    assert folder.plan.exists()
    taken = haltsweep("remove", "synthetic", "--yes", "--take-over")
    assert taken.code == 0
    assert f"{DEAD}; that session can write nothing more" in " ".join(taken.err.split())
    assert not folder.root.exists()


def test_others_of_the_same_database_stay(haltsweep, tmp_path, request):
    with postgres_url(request) as postgres:
        for url in (f"sqlite:///{tmp_path / 'team.db'}", postgres):
            gone, kept = make(tmp_path, "gone", url), make(tmp_path, "kept", url)
            assert haltsweep("remove", "gone", "--yes").code == 0
            assert not gone.root.exists()
            assert [each.name for each in summaries(url)] == ["kept"]
            assert haltsweep("remove", "kept", "--yes").code == 0
            assert not kept.root.exists()
            assert summaries(url) == []


def test_a_copy_takes_nothing_of_its_original_with_it(haltsweep, tmp_path):
    url = f"sqlite:///{tmp_path / 'team.db'}"
    folder = make(tmp_path, storage=url)
    shutil.copytree(tmp_path / "runs", tmp_path / "copied")
    shown = haltsweep("remove", "synthetic", "--yes", "--runs", str(tmp_path / "copied"))
    assert shown.code == 2
    assert f"is a copy of {folder.root}: both use {url}; use that folder" in shown.err
    assert [each.name for each in summaries(url)] == ["synthetic"]
    shutil.rmtree(folder.root)
    assert haltsweep("remove", "synthetic", "--yes", "--runs", str(tmp_path / "copied")).code == 0
    assert summaries(url) == []


def test_a_copy_leaves_the_runs_of_its_original_in_their_mlflow(tmp_path):
    folder = make(tmp_path)
    shutil.copytree(tmp_path / "runs", tmp_path / "copied")
    copy = SweepFolder(tmp_path / "copied" / "synthetic")
    tracked = replace(read_setup(copy), tracking_uri="http://user:secret@host:5000")
    publish_setup(folder, tracked)
    with pytest.raises(InputError, match=r"both use http://[^ ]*@host:5000; use that") as refused:
        removal.remove(copy, tracked, "http://host:5000")
    assert "secret" not in str(refused.value)
    removal.remove(copy, tracked)
    assert not copy.root.exists()


def publish_setup(folder, setup):
    """As it would have been published with that setup."""
    file = folder.root / launch_folder.SETUP
    file.write_text(seal_json(to_json_values(setup)))


def test_rows_without_a_folder_here(haltsweep, tmp_path):
    url = f"sqlite:///{tmp_path / 'team.db'}"
    make(tmp_path, "far", url).root.rename(tmp_path / "away")
    shown = haltsweep("remove", "far", "--yes", "--storage", url)
    assert (shown.code, shown.err) == (0, "")
    assert summaries(url) == []
    shown = haltsweep("remove", "far", "--yes", "--storage", url)
    assert shown.code == 1
    assert "no sweep 'far' in the ledger at" in shown.err


def find_runs(database):
    """Experiments of the runs that MLflow shows."""
    with sqlite3.connect(database) as connection:
        query = (
            "SELECT e.name FROM runs r JOIN experiments e USING (experiment_id) "
            "WHERE r.lifecycle_stage = 'active'"
        )
        return sorted(name for (name,) in connection.execute(query))


@pytest.mark.slow
def test_mlflow_loses_the_runs_of_this_sweep_if_asked_to(haltsweep, tmp_path):
    database = tmp_path / "runs" / "mlflow.db"
    uri = f"sqlite:///{database}"
    for name in ("one", "two", "three"):
        make(tmp_path, name, tracking=uri)
    assert haltsweep("remove", "one", "--yes").code == 0
    assert {"one", "two", "three"} == set(find_runs(database))
    assert (tmp_path / "runs" / "mlartifacts" / "two").exists()
    assert haltsweep("remove", "two", "--yes", "--mlflow").code == 0
    assert {"one", "three"} == set(find_runs(database))
    assert not (tmp_path / "runs" / "mlartifacts" / "two").exists()
    assert (tmp_path / "runs" / "mlartifacts" / "three").exists()
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT * FROM experiments WHERE name = 'two'").fetchall() == []
    make(tmp_path, "two", tracking=uri)
    assert "two" in find_runs(database)


@pytest.mark.slow
def test_an_mlflow_that_is_away_keeps_everything(haltsweep, tmp_path):
    folder = make(tmp_path)
    shown = haltsweep("remove", "synthetic", "--yes", "--mlflow", "--tracking", "http://127.0.0.1:9")
    assert shown.code == 1
    assert "MLflow at http://127.0.0.1:9 failed" in shown.err
    assert read_setup(folder)
    assert haltsweep("status", "synthetic").code == 0


def test_a_damaged_sweep_can_be_removed(haltsweep, tmp_path):
    for name, damage in (("a", "plan.json"), ("b", "launch.json"), ("c", "ledger.db")):
        folder = make(tmp_path, name)
        (folder.root / damage).write_bytes(b"no database at all" * 1000)
        assert haltsweep("remove", name, "--yes").code == 0
        assert not folder.root.exists()


def test_links_are_not_followed(haltsweep, tmp_path):
    folder = make(tmp_path)
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    (precious / "file").write_text("kept")
    (folder.root / "link").symlink_to(precious)
    (folder.root / "checkpoints").symlink_to(precious)
    os.mkfifo(folder.root / "pipe")
    assert haltsweep("remove", "synthetic", "--yes").code == 0
    assert (precious / "file").read_text() == "kept"
    assert (precious / "below").is_dir()


def test_a_folder_that_is_a_link_is_refused(haltsweep, tmp_path):
    folder = make(tmp_path)
    real = folder.root.rename(tmp_path / "synthetic")
    folder.root.symlink_to(real)
    shown = haltsweep("remove", "synthetic", "--yes")
    assert shown.code == 2
    assert (
        f"cannot remove a sweep through a symbolic link: {folder.root} points to {real}; remove it there"
        in shown.err
    )
    assert (real / "plan.json").exists()


@pytest.mark.parametrize("name", ["sintetic", "holidays", "..", ".", "", "nowhere/at/all"])
def test_what_is_no_sweep_is_refused(haltsweep, tmp_path, name):
    make(tmp_path)
    (tmp_path / "runs" / "holidays").mkdir()
    before = tree(tmp_path)
    shown = haltsweep("remove", name, "--yes")
    assert shown.code == 2
    assert f"no sweep named {name!r} in runs. " in shown.err
    assert tree(tmp_path) == before
