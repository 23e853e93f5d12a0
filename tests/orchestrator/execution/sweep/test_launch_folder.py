"""The folder of a sweep is there whole or not at all, and made once."""

import json
import multiprocessing
import os
import re
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli import sweep_checks
from orchestrator.cli.commands import listing, remove
from orchestrator.errors import InputError, NotAllowed, StoreError
from orchestrator.execution.sweep import launch_folder
from orchestrator.execution.sweep.launch_folder import Setup, publish, read_launched_plan, read_setup
from orchestrator.files.file_digests import seal_json, unseal_json
from orchestrator.identity import SweepFolder
from tests.support.specs.plans import make_plan
from trainables.process_identity import origin, process_label

PLAN = make_plan(1, trials_per_arm=1, seeds=())


@pytest.fixture
def folder(tmp_path):
    return SweepFolder(tmp_path / "all my runs" / "synthetic")


def made(folder, plan=PLAN, **more):
    setup = Setup(Path("data"), **more)
    publish(plan, folder, "name: synthetic\n", {"commit": "c0ffee"}, setup)
    return setup


def test_everything_is_in_it_and_nothing_beside_it(folder):
    setup = made(folder, workload="m:C", storage="postgresql://u@h/d", tracking_uri="http://h:1")
    assert read_launched_plan(folder) == PLAN
    assert read_setup(folder) == replace(setup, data_dir=Path.cwd() / "data")
    assert folder.spec.read_text() == "name: synthetic\n"
    assert json.loads(folder.provenance.read_text()) == {"commit": "c0ffee"}
    assert [each.name for each in folder.root.parent.iterdir()] == ["synthetic"]


def test_urls_are_for_the_owner_alone(folder):
    made(folder, storage="postgresql://u:secret@h/d")
    assert (folder.root / launch_folder.SETUP).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("shared", "umask", "mode"), [(False, 0, 0o700), (True, 0, 0o775), (True, 0o077, 0o700)]
)
def test_other_users_enter_a_folder_only_if_it_is_shared(folder, shared, umask, mode):
    before = os.umask(umask)
    try:
        made(folder, shared=shared)
    finally:
        os.umask(before)
    found = [each.stat().st_mode & 0o777 for each in (folder.root, folder.root.parent)]
    assert found == [mode, mode]


@pytest.mark.parametrize(
    ("places", "mode"),
    [
        ({"tracking_uri": "sqlite:////runs/mlflow.db", "storage": "sqlite:////team.db"}, 0o644),
        ({"tracking_uri": "http://host:5000"}, 0o600),
        ({"checkpoints": "s3://bucket/folder"}, 0o600),
        ({"storage": "sqlite:////team.db?key=secret"}, 0o600),
    ],
)
def test_others_may_read_what_names_files_alone(folder, places, mode):
    made(folder, **places)
    assert stat.S_IMODE((folder.root / launch_folder.SETUP).stat().st_mode) == mode


def test_what_is_for_its_owner_alone_is_not_told_as_damaged(folder, monkeypatch):
    made(folder)
    read = launch_folder.read_regular

    def refuse(file):
        if file.name == launch_folder.SETUP:
            raise PermissionError(13, "Permission denied", str(file))
        return read(file)

    monkeypatch.setattr(launch_folder, "read_regular", refuse)
    with pytest.raises(
        NotAllowed, match=r"is readable only for its owner \(.+\): it may hold passwords; run the"
    ):
        read_setup(folder)
    (found,) = [each for each in sweep_checks.check_files(folder) if each.verdict != "sound"]
    assert (found.what, found.verdict) == ("files", "unknown")
    assert listing._read_row(folder, {}).state == "not allowed"
    with pytest.raises(NotAllowed):
        remove._find(folder.name, folder.root.parent, None)


def test_the_ledger_is_in_the_folder_unless_said_otherwise(folder):
    assert Setup(Path("data")).ledger_url(folder) == folder.ledger_url
    assert Setup(Path("data"), storage="postgresql://u@h/d").ledger_url(folder) == "postgresql://u@h/d"


def test_a_moved_runs_folder_has_its_mlflow_with_it(folder, tmp_path):
    runs = folder.root.parent
    setup = made(
        folder, tracking_uri=f"sqlite:///{runs}/mlflow.db", storage=f"sqlite:///{tmp_path}/ledger.db"
    )
    assert read_setup(folder).tracking_uri == setup.tracking_uri
    copy = tmp_path / "else" / "where"
    shutil.copytree(runs, copy)
    found = read_setup(SweepFolder(copy / "synthetic"))
    assert found.tracking_uri == f"sqlite:///{copy}/mlflow.db"
    assert found.storage == setup.storage, "of all else each copy has the same"


def test_files_of_databases_do_not_depend_on_the_working_directory(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made(folder, tracking_uri="sqlite:///track.db", storage="sqlite:///ledger.db?timeout=5")
    monkeypatch.chdir("/")
    found = read_setup(folder)
    assert found.tracking_uri == f"sqlite:///{tmp_path}/track.db"
    assert found.storage == f"sqlite:///{tmp_path}/ledger.db?timeout=5"


def test_a_second_launch_is_pointed_to_resume(folder):
    made(folder)
    with pytest.raises(
        InputError, match=r"launched once, and 'synthetic' exists .* `haltsweep resume .*/synthetic.*`"
    ):
        made(folder)


def test_another_spec_under_the_same_name_is_refused(folder):
    made(folder)
    before = folder.plan.read_bytes()
    with pytest.raises(InputError, match="it was launched from another spec: choose another name"):
        made(folder, replace(PLAN, spec_digest="another"))
    assert folder.plan.read_bytes() == before


def test_a_folder_of_somebody_else_is_left_alone(folder):
    folder.root.mkdir(parents=True)
    (folder.root / "thesis.tex").write_text("a year of work")
    with pytest.raises(InputError, match="contains other files; choose another name"):
        made(folder)
    assert (folder.root / "thesis.tex").read_text() == "a year of work"


def test_an_empty_folder_is_taken(folder):
    folder.root.mkdir(parents=True)
    made(folder)
    assert read_launched_plan(folder) == PLAN


def test_a_file_in_its_place(folder):
    folder.root.parent.mkdir(parents=True)
    folder.root.write_text("")
    with pytest.raises((InputError, StoreError), match=re.escape(str(folder.root))):
        made(folder)


def test_a_place_where_no_folder_can_be_is_bad_input(folder):
    folder.root.parent.parent.mkdir(parents=True, exist_ok=True)
    folder.root.parent.write_text("")
    with pytest.raises(InputError, match=r"in a folder that can be made and written, got .* --runs"):
        made(folder)


def test_what_cannot_be_written_leaves_nothing(folder, monkeypatch):
    def full(file, text, mode=0o644):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(launch_folder, "write_atomically", full)
    with pytest.raises(
        StoreError, match=r"could not be made: .*No space left on device; the disk is full: free some space"
    ):
        made(folder)
    assert not list(folder.root.parent.iterdir())


def _launch(folder, results):
    try:
        made(folder)
        results.put("made")
    except InputError:
        results.put("refused")


def test_of_many_launches_at_once_one_succeeds(folder):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    racers = [context.Process(target=_launch, args=(folder, results)) for _ in range(3)]
    for each in racers:
        each.start()
    for each in racers:
        each.join()
    assert sorted(results.get() for _ in racers) == ["made", "refused", "refused"]
    assert [each.name for each in folder.root.parent.iterdir()] == ["synthetic"]


def test_what_killed_launches_left_is_cleared_and_what_live_ones_make_is_not(folder):
    folder.root.parent.mkdir(parents=True)
    dead = folder.root.parent / f".synthetic.launching-{2**22 + 1}-{origin()}aa-aa"
    alive = folder.root.parent / f".synthetic.launching-{process_label()}-bb"
    for each in (dead, alive):
        each.mkdir()
        (each / "spec.yaml").touch()
    made(folder)
    assert not dead.exists()
    assert alive.exists()


def test_what_was_never_launched_cannot_be_resumed(folder):
    with pytest.raises(InputError, match=r"contains no launched sweep to resume"):
        read_launched_plan(folder)


@pytest.mark.parametrize("text", [None, "{", "{}", '{"data_dir": "d", "unknown": 1}'])
def test_a_damaged_setup_is_named(folder, text):
    made(folder)
    file = folder.root / launch_folder.SETUP
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
        with pytest.raises(
            StoreError, match=r"launch.json must be as haltsweep wrote it, but cannot be read"
        ):
            read_setup(folder)
        (folder.root / "manifest.json").unlink()  # as before there were any
    with pytest.raises(StoreError, match=r"launch.json must be as haltsweep wrote it, but cannot be read"):
        read_setup(folder)


@pytest.mark.parametrize("field", ["data_dir", "workload", "code", "storage", "tracking_uri", "checkpoints"])
@pytest.mark.parametrize("value", [5, True, [], {"a": 1}, [[[]]], 1e300])
def test_a_setup_with_a_sound_digest_and_fields_of_another_type_is_named(folder, field, value):
    made(folder)
    file = folder.root / launch_folder.SETUP
    file.write_text(seal_json(unseal_json(file.read_bytes()) | {field: value}))
    with pytest.raises(
        StoreError, match=r"launch.json must be as haltsweep wrote it, but cannot be read"
    ) as caught:
        read_setup(folder)
    assert "\n" not in str(caught.value)


def test_a_setup_and_a_manifest_nested_without_end_are_named(folder):
    made(folder)
    deep = '{"digest": ' + "[" * 100_000 + "]" * 100_000 + "}"
    (folder.root / launch_folder.SETUP).write_text(deep)
    with pytest.raises(StoreError, match=r"launch.json must be as .* nested less deeply"):
        read_setup(folder)
    (folder.root / "manifest.json").write_text(deep)
    with pytest.raises(StoreError, match=r"manifest.json must be as .* nested less deeply"):
        read_launched_plan(folder)


def test_a_damaged_manifest_is_named(folder):
    made(folder)
    (folder.root / "manifest.json").write_text('{"files":{}}')
    with pytest.raises(StoreError, match=r"manifest.json must be as haltsweep wrote it, and is damaged"):
        read_launched_plan(folder)
