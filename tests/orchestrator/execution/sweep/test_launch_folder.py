"""A launch creates the folder of a sweep completely or not at all, and once."""

import json
import multiprocessing
import os
import re
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import InputError, StoreError
from orchestrator.execution.sweep import launch_folder
from orchestrator.execution.sweep.launch_folder import (
    Setup,
    create_sweep_folder,
    read_launched_plan,
    read_setup,
)
from orchestrator.files.file_digests import seal_json, unseal_json
from orchestrator.identity import SweepFolder
from tests.support.specs.plans import make_plan
from trainables.process_identity import origin, process_label

PLAN = make_plan(1, trials_per_arm=1, seeds=())


@pytest.fixture
def folder(tmp_path):
    return SweepFolder(tmp_path / "all my runs" / "synthetic")


def publish_sweep(folder, plan=PLAN, **options):
    setup = Setup(Path("data"), **options)
    create_sweep_folder(plan, folder, "name: synthetic\n", {"commit": "c0ffee"}, setup)
    return setup


def test_folder_contains_all_files_and_nothing_else_is_created(folder):
    setup = publish_sweep(folder, workload="m:C", storage="postgresql://u@h/d", tracking_uri="http://h:1")
    assert read_launched_plan(folder) == PLAN
    assert read_setup(folder) == replace(setup, data_dir=Path.cwd() / "data")
    assert folder.spec.read_text() == "name: synthetic\n"
    assert json.loads(folder.provenance.read_text()) == {"commit": "c0ffee"}
    assert [path.name for path in folder.root.parent.iterdir()] == ["synthetic"]


@pytest.mark.parametrize(
    ("shared", "umask", "mode"), [(False, 0, 0o700), (True, 0, 0o775), (True, 0o077, 0o700)]
)
def test_other_users_enter_a_folder_only_if_it_is_shared(folder, shared, umask, mode):
    old_umask = os.umask(umask)
    try:
        publish_sweep(folder, shared=shared)
    finally:
        os.umask(old_umask)
    modes = [path.stat().st_mode & 0o777 for path in (folder.root, folder.root.parent)]
    assert modes == [mode, mode]


@pytest.mark.parametrize(
    ("locations", "mode"),
    [
        ({"tracking_uri": "sqlite:////runs/mlflow.db", "storage": "sqlite:////team.db"}, 0o644),
        ({"tracking_uri": "http://host:5000"}, 0o600),
        ({"storage": "sqlite:////team.db?key=secret"}, 0o600),
    ],
)
def test_setup_that_names_only_files_is_readable_by_others(folder, locations, mode):
    publish_sweep(folder, **locations)
    assert stat.S_IMODE((folder.root / launch_folder.SETUP_FILE).stat().st_mode) == mode


def test_moved_runs_folder_includes_its_mlflow_database(folder, tmp_path):
    runs = folder.root.parent
    setup = publish_sweep(
        folder, tracking_uri=f"sqlite:///{runs}/mlflow.db", storage=f"sqlite:///{tmp_path}/ledger.db"
    )
    assert read_setup(folder).tracking_uri == setup.tracking_uri
    copy = tmp_path / "else" / "where"
    shutil.copytree(runs, copy)
    copied_setup = read_setup(SweepFolder(copy / "synthetic"))
    assert copied_setup.tracking_uri == f"sqlite:///{copy}/mlflow.db"
    assert copied_setup.storage == setup.storage, "the copy must use the same ledger"


def test_other_spec_with_the_same_name_is_refused(folder):
    publish_sweep(folder)
    plan_bytes = folder.plan.read_bytes()
    with pytest.raises(InputError, match=r"^(?!.*haltsweep resume).*'synthetic'"):
        publish_sweep(folder, replace(PLAN, spec_digest="another"))
    assert folder.plan.read_bytes() == plan_bytes


def test_folder_with_foreign_files_is_left_unchanged(folder):
    folder.root.mkdir(parents=True)
    (folder.root / "thesis.tex").write_text("a year of work")
    with pytest.raises(InputError, match=re.escape(str(folder.root))):
        publish_sweep(folder)
    assert (folder.root / "thesis.tex").read_text() == "a year of work"


def test_location_that_cannot_contain_a_folder_raises_an_error(folder):
    folder.root.parent.parent.mkdir(parents=True, exist_ok=True)
    folder.root.parent.write_text("")
    with pytest.raises(InputError, match="--runs"):
        publish_sweep(folder)


def test_failed_write_leaves_no_files(folder, monkeypatch):
    def fail_with_full_disk(file, text, mode=0o644):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(launch_folder, "write_atomically", fail_with_full_disk)
    with pytest.raises(StoreError, match="No space left on device"):
        publish_sweep(folder)
    assert not list(folder.root.parent.iterdir())


def _launch(folder, results):
    try:
        publish_sweep(folder)
        results.put("made")
    except InputError:
        results.put("refused")


def test_one_of_many_simultaneous_launches_succeeds(folder):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_launch, args=(folder, results)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(results.get() for _ in processes) == ["made", "refused", "refused"]
    assert [path.name for path in folder.root.parent.iterdir()] == ["synthetic"]


def test_leftovers_of_killed_launches_are_deleted_and_running_launches_are_not(folder):
    folder.root.parent.mkdir(parents=True)
    dead_folder = folder.root.parent / f".synthetic.launching-{2**22 + 1}-{origin()}aa-aa"
    alive_folder = folder.root.parent / f".synthetic.launching-{process_label()}-bb"
    for path in (dead_folder, alive_folder):
        path.mkdir()
        (path / "spec.yaml").touch()
    publish_sweep(folder)
    assert not dead_folder.exists()
    assert alive_folder.exists()


def test_folder_without_a_launched_sweep_cannot_be_resumed(folder):
    with pytest.raises(InputError, match="`haltsweep status`"):
        read_launched_plan(folder)


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda file: file.write_text("{"),
        lambda file: file.write_text(seal_json(unseal_json(file.read_bytes()) | {"data_dir": 5})),
    ],
    ids=["missing", "truncated", "type"],
)
def test_damaged_setup_and_manifest_are_named(folder, damage):
    publish_sweep(folder)
    damage(folder.root / launch_folder.SETUP_FILE)
    with pytest.raises(StoreError, match=launch_folder.SETUP_FILE):
        read_setup(folder)
    (folder.root / "manifest.json").write_text('{"files":{}}')
    with pytest.raises(StoreError, match=r"manifest.json"):
        read_launched_plan(folder)
