"""A launch builds each training, validation and confirm split once, before workers start."""

from dataclasses import replace

import pytest

from orchestrator.errors import InputError
from orchestrator.execution.datasets import build_datasets, collect_inputs, data_digests, require_files
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.plan.planned_trials import with_data_seed
from orchestrator.plan.types import ConfirmPlan
from orchestrator.tracking.inputs import inputs_for, split_digests
from tests.support.specs.plans import make_arm, make_plan
from trainables.data.store import open_split, split_path
from trainables.task_catalog import task_config

SMALL = {"name": "listops", "trees": 400, "near_iid_examples": 20, "valid_examples": 20, "test_examples": 10}


def make_plan_on(*tasks, splits=()):
    arms = [make_arm(f"arm-{number}") for number in range(len(tasks))]
    arms = [
        replace(arm, settings={**arm.settings, "task": task}) for arm, task in zip(arms, tasks, strict=True)
    ]
    return replace(make_plan(arms), confirm=ConfirmPlan(1, (7,), splits))


def built_splits(task, data_dir):
    folder = split_path(task_config(task), "train", data_dir).parent
    return {file.stem for file in folder.glob("*.arrow")} if folder.exists() else set()


def test_arms_with_the_same_task_share_its_data(tmp_path):
    progress = []
    build_datasets(make_plan_on(SMALL, dict(SMALL)), tmp_path, lambda *update: progress.append(update))
    assert built_splits(SMALL, tmp_path) == {"train", "valid"}
    assert progress[-1] == ("listops", "valid", 2, 2)


def test_data_of_every_seed_are_built_if_data_are_resampled(tmp_path):
    plan_ = make_plan_on({**SMALL, "data_seed": 0}, splits=("near-iid",))
    plan_ = replace(plan_, confirm=replace(plan_.confirm, seeds=(7, 8), resample_data=True))
    inputs = collect_inputs(plan_, tmp_path)
    settings_by_seed = [with_data_seed(seed, plan_.arms[0].settings) for seed in (7, 8)]
    digests = [{item.digest for item in inputs_for(inputs, settings)} for settings in settings_by_seed]
    assert [len(group) for group in digests] == [3, 3]
    assert not digests[0] & digests[1]
    assert all(
        built_splits(settings["task"], tmp_path) == {"train", "valid", "near-iid"}
        for settings in settings_by_seed
    )


def test_streamed_split_is_not_built(tmp_path):
    task = {"name": "algorithms", "valid_examples": 5, "test_examples": 5, "test_lengths": [30, 40]}
    build_datasets(make_plan_on(task, splits=("length-40",)), tmp_path)
    assert built_splits(task, tmp_path) == {"valid", "length-40"}


def test_missing_files_are_reported_before_any_file_is_read(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"lra_text.*train/neg"):
        require_files(make_plan_on(SMALL, {"name": "lra_text", "folder": str(tmp_path / "nowhere")}))
    monkeypatch.setattr("trainables.data.files.content_digest", lambda *_: pytest.fail("must not be read"))
    for part in ("train/pos", "train/neg", "test/pos", "test/neg"):
        (tmp_path / "reviews" / part).mkdir(parents=True)
    require_files(make_plan_on(SMALL, {"name": "lra_text", "folder": str(tmp_path / "reviews")}))


def test_inputs_of_arms_are_listed_with_digests_of_their_content(tmp_path):
    plan = make_plan_on(SMALL, dict(SMALL), splits=("near-iid",))
    (inputs,) = collect_inputs(plan, tmp_path).values()
    assert [(item.name, item.context) for item in inputs] == [
        ("listops/train", "train"),
        ("listops/valid", "valid"),
        ("listops/near-iid", "test"),
    ]
    for item in inputs:
        assert (tmp_path / item.place).is_file()
        split = item.name.rpartition("/")[2]
        assert item.digest == open_split(task_config(SMALL), split, tmp_path).content_hash
    assert {
        item.digest for item in inputs_for(collect_inputs(plan, tmp_path), {"task": SMALL}, "search")
    } == {item.digest for item in inputs if item.context != "test"}


def test_split_digests_equal_digests_of_the_data(tmp_path):
    plan = make_plan_on(SMALL, {**SMALL, "data_seed": 1}, dict(SMALL), splits=("near-iid",))
    digests = split_digests(collect_inputs(plan, tmp_path))
    assert digests == data_digests(plan, Setup(tmp_path))
    assert [len(group.split(", ")) for group in digests.values()] == [2, 2, 2]
