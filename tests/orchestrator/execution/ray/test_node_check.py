"""A node checks whether it can run the trials of a sweep."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.execution.ray import node_check
from orchestrator.execution.ray.node_check import (
    MARKER_PREFIX,
    NodeRequirements,
    check_node,
    create_marker_file,
    node_requirements,
    requirements_with_data,
)
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.identity import SweepFolder
from tests.support.specs.plans import make_plan
from tests.support.sweeps.workloads import PATH

TASK = {"name": "listops", "trees": 300, "depth_max": 2, "arguments_max": 3, "train_length_max": 20}
TASK |= {"near_iid_examples": 20, "valid_examples": 20, "test_examples": 20, "length_ranges": [[20, 40]]}


@pytest.fixture
def needs(tmp_path):
    requirements = node_requirements(make_plan(), Setup(tmp_path / "data", PATH))
    with create_marker_file(requirements, tmp_path) as marked:
        yield marked


def test_launching_machine_meets_the_requirements(needs):
    assert check_node(needs) == node_check.NodeReport()
    assert NodeRequirements.from_json(needs.to_json()) == needs


def test_machine_with_another_folder_is_unshared(needs, tmp_path):
    Path(needs.mark).write_text("mark of another sweep")
    report = check_node(needs)
    assert report.lacks_shared_folder
    assert str(tmp_path) in report.problems[0]
    Path(needs.mark).unlink()
    assert check_node(needs).lacks_shared_folder


def test_folder_that_is_not_writable_is_unshared(needs, monkeypatch):
    def refuse(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(node_check.tempfile, "TemporaryFile", refuse)
    report = check_node(needs)
    assert report.lacks_shared_folder
    assert "(Read-only file system)" in report.problems[0]


def test_external_checkpoints_need_no_shared_folder(tmp_path):
    needs = node_requirements(make_plan(), Setup(tmp_path, PATH, checkpoints=f"file://{tmp_path}/store"))
    with create_marker_file(needs, tmp_path / "unused") as marked:
        assert check_node(marked).problems == ()
    (tmp_path / "taken").touch()
    (lack,) = check_node(replace(needs, store=f"file://{tmp_path}/taken")).problems
    assert "--checkpoints" in lack


def test_different_code_is_reported_alone(needs):
    report = check_node(replace(needs, code=needs.code | {PATH: "0" * 32}, mark="/nowhere"))
    (lack,) = report.problems
    assert PATH in lack
    assert not report.lacks_shared_folder


def test_different_versions_are_reported_but_allowed(needs):
    report = check_node(replace(needs, versions={**needs.versions, "torch": "1.0"}))
    assert report.problems == ()
    (difference,) = report.differences
    assert re.search(r"torch.* 1\.0$", difference)


@pytest.fixture
def built_needs(needs, tmp_path):
    """Requirements of a sweep whose data sets exist on the launching machine."""
    hashes = node_check.content_hashes((TASK,), ("near-iid",), tmp_path / "data")
    return replace(needs, tasks=(TASK,), splits=("near-iid",), data=hashes)


def test_each_machine_builds_equal_data(built_needs, tmp_path):
    other_folder = tmp_path / "other machine"
    assert check_node(replace(built_needs, data_dir=str(other_folder))).problems == ()
    local_folder = tmp_path / "data"
    files = {path.relative_to(other_folder): path.read_bytes() for path in other_folder.rglob("*.arrow")}
    assert files == {
        path.relative_to(local_folder): path.read_bytes() for path in local_folder.rglob("*.arrow")
    }
    assert {path.stem for path in files} >= {"train", "near-iid"}


def test_different_data_are_reported(built_needs):
    name = next(iter(built_needs.data))
    (lack,) = check_node(replace(built_needs, data={**built_needs.data, name: "other"})).problems
    assert name in lack


def test_requirements_with_data_delete_marker_files_of_killed_sessions(tmp_path):
    folder = SweepFolder(tmp_path / "sweep")
    folder.root.mkdir()
    (folder.root / f"{MARKER_PREFIX}stale").touch()
    with requirements_with_data(make_plan(), Setup(tmp_path, PATH), folder) as needs:
        assert [path.name for path in folder.root.iterdir()] == [Path(needs.mark).name]
        assert needs.data == {}
    assert list(folder.root.iterdir()) == []
