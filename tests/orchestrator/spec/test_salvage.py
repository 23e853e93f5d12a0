"""Of a faulty spec all faults are told at once: those of its form, and those that planning the rest shows."""

import pytest

from orchestrator.errors import PlanError, SpecError
from orchestrator.plan.planner import plan_file

TASK = """  task: {name: listops, trees: 300, near_iid_examples: 20, valid_examples: 20, test_examples: 20}
"""
MODEL = "  model: {name: universal, width: 16, heads: 2}\n"
TRAIN = "  train: {steps: 4, batch_size: 8, lr: 0.001}\n"
ARM = "  minus-gate: {why: no gate, set: {model.gate: false}}\n"
CONFIRM = "confirm: {seeds: [1, 2, 3], splits: [near-iid]}\n"
SEARCH = """search:
  also: {train.lr: {float: [0.001, 0.01]}}
  trials_per_arm: 2
  objectives: [{metric: valid/accuracy, goal: max}]
"""


def told(
    tmp_path,
    *,
    head="",
    task=TASK,
    model=MODEL,
    train=TRAIN,
    arms=ARM,
    search="",
    confirm=CONFIRM,
    whole=False,
):
    """Paths of all faults of such a spec, the `whole` messages with them if asked for."""
    path = tmp_path / "spec.yaml"
    baseline = f"baseline:\n{task}{model}{train}"
    path.write_text(f"name: faulty\nquestion: Why?\n{head}{baseline}arms:\n{arms}{search}{confirm}")
    try:
        plan_file(path)
    except (SpecError, PlanError) as error:
        return [f"{fault.path}: {fault.message}" if whole else fault.path for fault in error.faults]
    return []


def test_a_sound_spec_has_none(tmp_path):
    assert told(tmp_path) == told(tmp_path, search=SEARCH) == []


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"task": ""}, ["baseline.task"]),
        ({"task": "  task: listops\n"}, ["baseline.task"]),
        (
            {"task": "", "train": "  train: {steps: 0, lrr: 1}\n"},
            ["baseline.task", "baseline.train.steps", "baseline.train.lrr"],
        ),
        (
            {"model": "  modle: {name: universal}\n", "train": "  train: {steps: 0, batch_size: 8, lr: 1}\n"},
            ["baseline.model", "baseline.modle", "baseline.train.steps"],
        ),
        (
            {"train": "", "model": "  model: {name: universal, width: 16, heads: 3}\n"},
            ["baseline.train.steps", "baseline.model"],
        ),
        (
            {"train": "", "arms": "  fast: {why: fast, set: {train.stepz: 9}}\n"},
            ["baseline.train.steps", "arms.fast.set.train.stepz"],
        ),
    ],
)
def test_where_a_part_of_the_baseline_lacks_the_others_are_looked_at(tmp_path, parts, expected):
    assert sorted(told(tmp_path, **parts)) == sorted(expected)


@pytest.mark.parametrize(
    ("arm", "expected"),
    [
        ("{set: {model.gat: false}}", ["why", "set.model.gat"]),
        ("{why: ' ', set: {model.gate: true}}", ["why", "set.model.gate"]),
        ("{why: g, note: n, set: {model.gate: 3}}", ["note", "set.model.gate"]),
        ("{why: g, sett: {model.gate: 3}}", ["set", "sett"]),
        ("{set: [model.gate]}", ["why", "set"]),
    ],
)
def test_an_arm_without_a_reason_is_looked_at_all_the_same(tmp_path, arm, expected):
    found = told(tmp_path, arms=f"  minus-gate: {arm}\n")
    assert sorted(found) == sorted(f"arms.minus-gate.{each}".rstrip(".") for each in expected)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("trials_per_arm: 2", "trials_per_arm: 0", []),
        ("trials_per_arm: 2", "trials_per_arm: 0\n  sampler: grid", []),
        ("trials_per_arm: 2", "trials_per_arm: 0\n  sampler: {name: BruteForceSampler}", []),
    ],
)
def test_what_a_search_looks_for_is_looked_at_whatever_its_trials(tmp_path, before, after, expected):
    faulty = SEARCH.replace(before, after)
    assert told(tmp_path, search=faulty) == ["search.trials_per_arm", *expected]
    if "sampler" not in after:
        faulty = faulty.replace("valid/accuracy", "valid/acuracy").replace("train.lr:", "train.lrr:")
        found = told(tmp_path, search=faulty)
        assert sorted(found) == [
            "search.also.train.lrr",
            "search.objectives[0].metric",
            "search.trials_per_arm",
        ]


@pytest.mark.parametrize("seeds", ["[]", "[1, 1]", "[a]", "0"])
def test_splits_are_looked_at_whatever_the_seeds(tmp_path, seeds):
    found = told(tmp_path, confirm=f"confirm: {{seeds: {seeds}, splits: [far-iid]}}\n")
    assert {each.partition("[")[0] for each in found} == {"confirm.seeds", "confirm.splits"}


def test_more_to_confirm_than_is_searched_hides_no_split(tmp_path):
    found = told(tmp_path, search=SEARCH, confirm="confirm: {best: 3, seeds: [1, 2, 3], splits: [far-iid]}\n")
    assert found == ["confirm.best", "confirm.splits[0]"]


def test_a_part_of_the_baseline_at_the_top_is_told_where_it_belongs(tmp_path):
    found = told(tmp_path, head=TASK.strip() + "\n", task="", whole=True)
    assert found == [
        "task: is not a known key here. Write it into baseline, as baseline.task",
        "baseline.task: is required",
    ]
