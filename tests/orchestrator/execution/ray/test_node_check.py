"""What a machine says when it is asked whether it can run trials."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.execution.ray import node_check
from orchestrator.execution.ray.node_check import (
    MARK,
    NodeRequirements,
    check_node,
    node_requirements,
    requirements_with_data,
    with_marker_file,
)
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.identity import SweepFolder
from tests.support.specs.plans import make_plan
from tests.support.sweeps.workloads import PATH

TASK = {"name": "listops", "trees": 300, "depth_max": 2, "arguments_max": 3, "train_length_max": 20}
TASK |= {"near_iid_examples": 20, "valid_examples": 20, "test_examples": 20, "length_ranges": [[20, 40]]}


@pytest.fixture
def needs(tmp_path):
    made = node_requirements(make_plan(), Setup(tmp_path / "data", PATH))
    with with_marker_file(made, tmp_path) as raised:
        yield raised


def test_the_launching_machine_has_what_it_needs(needs):
    assert check_node(needs) == node_check.NodeReport()
    assert NodeRequirements.from_json(needs.to_json()) == needs


def test_the_mark_is_gone_afterwards(tmp_path):
    with with_marker_file(node_requirements(make_plan(), Setup(tmp_path, PATH)), tmp_path):
        assert len(list(tmp_path.glob(f"{MARK}*"))) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_marked_is_told(tmp_path):
    needs = node_requirements(make_plan(), Setup(tmp_path, PATH))
    with pytest.raises(StoreError), with_marker_file(needs, tmp_path / "away"):
        pass


def test_a_machine_that_sees_another_folder(needs, tmp_path):
    Path(needs.mark).write_text("another sweep's")
    shown = check_node(needs)
    assert shown.unshared
    assert shown.lacks == (f"it does not see the folder {tmp_path} of the launching machine",)
    Path(needs.mark).unlink()
    assert check_node(needs).unshared


def test_a_folder_that_cannot_be_written_is_not_shared(needs, monkeypatch):
    def refuse(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(node_check.tempfile, "TemporaryFile", refuse)
    shown = check_node(needs)
    assert shown.unshared
    assert "it cannot write to" in shown.lacks[0]
    assert "(Read-only file system)" in shown.lacks[0]
    assert "choose another --data" in shown.lacks[1]


def test_nobody_needs_the_folder_where_checkpoints_are_elsewhere(tmp_path):
    needs = node_requirements(make_plan(), Setup(tmp_path, PATH, checkpoints=f"file://{tmp_path}/store"))
    with with_marker_file(needs, tmp_path / "never looked at") as raised:
        assert check_node(raised).lacks == ()
    (tmp_path / "taken").touch()
    (lack,) = check_node(replace(needs, store=f"file://{tmp_path}/taken")).lacks
    assert (
        "it cannot use the store of checkpoints (--checkpoints must be a location that allows writing" in lack
    )


def test_other_code_is_told_and_nothing_else_is_looked_at(needs):
    shown = check_node(replace(needs, code=needs.code | {PATH: "0" * 32}, mark="/nowhere"))
    assert shown.lacks == (f"its code of {PATH} is another one than where the launch is",)
    assert not shown.unshared


def test_code_that_is_not_there(needs):
    shown = check_node(replace(needs, workload="no_such_module:Class"))
    assert "a trainable must be given as module:name that can be imported" in shown.lacks[0]


def test_other_versions_are_told_and_no_hindrance(needs):
    shown = check_node(replace(needs, versions={**needs.versions, "torch": "1.0"}))
    assert shown.lacks == ()
    assert [line for line in shown.differs if line.endswith("instead of 1.0")] == list(shown.differs) != []


@pytest.fixture
def built(needs, tmp_path):
    """NodeRequirements of a sweep that has built its data."""
    hashes = node_check.content_hashes((TASK,), ("near-iid",), tmp_path / "data")
    return replace(needs, tasks=(TASK,), splits=("near-iid",), data=hashes)


def test_each_machine_builds_its_own_data_the_same(built, tmp_path):
    other = tmp_path / "other machine"
    assert check_node(replace(built, data_dir=str(other))).lacks == ()
    ours = tmp_path / "data"
    files = {path.relative_to(other): path.read_bytes() for path in other.rglob("*.arrow")}
    assert files == {path.relative_to(ours): path.read_bytes() for path in ours.rglob("*.arrow")}
    assert {path.stem for path in files} >= {"train", "near-iid"}


def test_before_the_launch_nothing_is_built_or_made(built, tmp_path):
    assert check_node(replace(built, data=None, data_dir=str(tmp_path / "other"))).lacks == ()
    assert not (tmp_path / "other").exists()


def test_data_that_differ_are_told(built):
    name = next(iter(built.data))
    (lack,) = check_node(replace(built, data={**built.data, name: "other"})).lacks
    assert lack == f"its data differ from the launching machine's: {name}"


def test_published_files_that_are_away_are_told(needs):
    task = {"name": "lra_text", "folder": "no/such/folder"}
    (lack,) = check_node(replace(needs, tasks=(task,))).lacks
    assert "no/such/folder" in lack


def test_the_needs_of_a_session_clear_away_marks_of_killed_ones(tmp_path):
    folder = SweepFolder(tmp_path / "sweep")
    folder.root.mkdir()
    (folder.root / f"{MARK}stale").touch()
    with requirements_with_data(make_plan(), Setup(tmp_path, PATH), folder) as needs:
        assert [path.name for path in folder.root.iterdir()] == [Path(needs.mark).name]
        assert needs.data == {}
    shutil.rmtree(folder.root)
