"""Data is built before workers start: what arms train on, validate with and are confirmed on, each once."""

from dataclasses import replace

import pytest

from orchestrator.errors import InputError
from orchestrator.execution.datasets import build_datasets, collect_inputs, data_digests, require_files
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.plan.planned_trials import with_data_seed
from orchestrator.plan.types import ConfirmPlan
from orchestrator.tracking.inputs import inputs_for, split_digests
from tests.support.specs.plans import make_arm, make_plan
from trainables.data.progress import Watcher
from trainables.data.store import open_split, split_path
from trainables.task_catalog import task_config

SMALL = {"name": "listops", "trees": 400, "near_iid_examples": 20, "valid_examples": 20, "test_examples": 10}


def plan_on(*tasks, splits=()):
    arms = [make_arm(f"arm-{number}") for number in range(len(tasks))]
    arms = [
        replace(arm, settings={**arm.settings, "task": task}) for arm, task in zip(arms, tasks, strict=True)
    ]
    return replace(make_plan(arms), confirm=ConfirmPlan(1, (7,), splits))


def built(task, data_dir):
    folder = split_path(task_config(task), "train", data_dir).parent
    return {each.stem for each in folder.glob("*.arrow")} if folder.exists() else set()


def test_arms_of_one_task_share_its_data(tmp_path):
    shown = []
    build_datasets(plan_on(SMALL, dict(SMALL)), tmp_path, lambda *each: shown.append(each))
    assert built(SMALL, tmp_path) == {"train", "valid"}
    assert shown == [
        ("listops", "train", 0, 2),
        ("listops", "valid", 1, 2),
        ("listops", "valid", 2, 2),
    ]


def test_whoever_watches_hears_how_far_a_build_is(tmp_path):
    shown = []
    build_datasets(
        plan_on({**SMALL, "data_seed": 5}), tmp_path, watcher=Watcher(lambda *each: shown.append(each))
    )
    assert ("trees", 360, 360) in shown  # those that are trained on; the others are drawn before
    assert all(done == total for _, done, total in shown)


def test_every_task_and_confirmed_split_is_built(tmp_path):
    other = {**SMALL, "data_seed": 1}
    build_datasets(plan_on(SMALL, other, splits=("near-iid",)), tmp_path)
    for task in (SMALL, other):
        assert built(task, tmp_path) == {"train", "valid", "near-iid"}


def test_the_data_of_every_seed_are_built_where_each_has_its_own(tmp_path):
    made = plan_on({**SMALL, "data_seed": 0}, splits=("near-iid",))
    made = replace(made, confirm=replace(made.confirm, seeds=(7, 8), resample_data=True))
    inputs = collect_inputs(made, tmp_path)
    drawn = [with_data_seed(seed, made.arms[0].settings) for seed in (7, 8)]
    digests = [{each.digest for each in inputs_for(inputs, settings)} for settings in drawn]
    assert [len(each) for each in digests] == [3, 3]
    assert not digests[0] & digests[1]
    assert all(built(settings["task"], tmp_path) == {"train", "valid", "near-iid"} for settings in drawn)


def test_what_is_streamed_is_not_built(tmp_path):
    task = {"name": "algorithms", "valid_examples": 5, "test_examples": 5, "test_lengths": [30, 40]}
    build_datasets(plan_on(task, splits=("length-40",)), tmp_path)
    assert built(task, tmp_path) == {"valid", "length-40"}


def test_data_that_cannot_be_read_is_a_fault_of_what_was_asked(tmp_path):
    task = {"name": "logical_inference", "folder": str(tmp_path / "nowhere")}
    message = (
        r"the split train of logical_inference cannot be made: folder must hold the files train0 \.\. train12"
    )
    with pytest.raises(InputError, match=message):
        build_datasets(plan_on(task), tmp_path)


def test_files_that_are_not_there_are_told_before_any_is_read(tmp_path, monkeypatch):
    message = r"the data of lra_text cannot be read: folder must hold train/neg, .*put them there"
    with pytest.raises(InputError, match=message):
        require_files(plan_on(SMALL, {"name": "lra_text", "folder": str(tmp_path / "nowhere")}))
    monkeypatch.setattr("trainables.data.files.content_digest", lambda *_: pytest.fail("must not be read"))
    for part in ("train/pos", "train/neg", "test/pos", "test/neg"):
        (tmp_path / "reviews" / part).mkdir(parents=True)
    require_files(plan_on(SMALL, {"name": "lra_text", "folder": str(tmp_path / "reviews")}))


def test_what_arms_read_is_listed_with_digests_of_its_content(tmp_path):
    plan = plan_on(SMALL, dict(SMALL), splits=("near-iid",))
    (found,) = collect_inputs(plan, tmp_path).values()
    assert [(each.name, each.context) for each in found] == [
        ("listops/train", "train"),
        ("listops/valid", "valid"),
        ("listops/near-iid", "test"),
    ]
    for each in found:
        assert (tmp_path / each.place).is_file()
        split = each.name.rpartition("/")[2]
        assert each.digest == open_split(task_config(SMALL), split, tmp_path).content_hash
    assert {
        each.digest for each in inputs_for(collect_inputs(plan, tmp_path), {"task": SMALL}, "search")
    } == {each.digest for each in found if each.context != "test"}


def test_digests_of_what_was_listed_are_those_of_the_data_themselves(tmp_path):
    plan = plan_on(SMALL, {**SMALL, "data_seed": 1}, dict(SMALL), splits=("near-iid",))
    found = split_digests(collect_inputs(plan, tmp_path))
    assert found == data_digests(plan, Setup(tmp_path))
    assert [len(each.split(", ")) for each in found.values()] == [2, 2, 2]
