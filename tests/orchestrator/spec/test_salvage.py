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


def reported(
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
    assert reported(tmp_path) == reported(tmp_path, search=SEARCH) == []


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
    assert sorted(reported(tmp_path, **parts)) == sorted(expected)


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
    found = reported(tmp_path, arms=f"  minus-gate: {arm}\n")
    assert sorted(found) == sorted(f"arms.minus-gate.{each}".rstrip(".") for each in expected)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("trials_per_arm: 2", "trials_per_arm: 0", []),
        ("trials_per_arm: 2", "trials_per_arm: 0\n  sampler: grid", ["search.also.train.lr"]),
        ("trials_per_arm: 2", "trials_per_arm: 0\n  sampler: {name: BruteForceSampler}", ["search.sampler"]),
    ],
)
def test_what_a_search_looks_for_is_looked_at_whatever_its_trials(tmp_path, before, after, expected):
    faulty = SEARCH.replace(before, after)
    assert sorted(reported(tmp_path, search=faulty)) == sorted(["search.trials_per_arm", *expected])
    if "sampler" not in after:
        faulty = faulty.replace("valid/accuracy", "valid/acuracy").replace("train.lr:", "train.lrr:")
        found = reported(tmp_path, search=faulty)
        assert sorted(found) == [
            "search.also.train.lrr",
            "search.objectives[0].metric",
            "search.trials_per_arm",
        ]


@pytest.mark.parametrize("seeds", ["[]", "[1, 1]", "[a]", "0"])
def test_splits_are_looked_at_whatever_the_seeds(tmp_path, seeds):
    found = reported(tmp_path, confirm=f"confirm: {{seeds: {seeds}, splits: [far-iid]}}\n")
    assert {each.partition("[")[0] for each in found} == {"confirm.seeds", "confirm.splits"}


def test_more_to_confirm_than_is_searched_hides_no_split(tmp_path):
    found = reported(
        tmp_path, search=SEARCH, confirm="confirm: {best: 3, seeds: [1, 2, 3], splits: [far-iid]}\n"
    )
    assert found == ["confirm.best", "confirm.splits[0]"]


def test_a_part_of_the_baseline_at_the_top_is_told_where_it_belongs(tmp_path):
    found = reported(tmp_path, head=TASK.strip() + "\n", task="", whole=True)
    assert found == [
        "task: is not a known key here. Write it into baseline, as baseline.task",
        "baseline.task: is required",
    ]


ANSWER = "answer: {metric: near-iid/accuracy}\n"
WRONG_ARM = "  minus-gate: {why: no gate, set: {model.gat: false}}\n"
TOLD_ARM = "arms.minus-gate.set.model.gat"


@pytest.mark.parametrize(
    ("confirm", "expected"),
    [
        ("{seeds: [1, 2, 3], splits: [near-iid], stop: soon}", ["confirm.stop"]),
        ("{seeds: [1, 2, 3], splits: [near-iid], halting_examples: 99}", ["confirm.halting_examples"]),
        ("{seeds: [1, 2, 3], splits: [near-iid], note: n}", ["confirm.note"]),
        ("{seeds: [1, 1], splits: [near-iid], stop: decided}", ["confirm.seeds", "confirm.stop"]),
        ("{seeds: [], splits: [near-iid, far], stop: decided}", ["confirm.seeds", "confirm.splits[1]"]),
        ("{seeds: [1, 2, 3], splits: 3}", ["confirm.splits"]),
        ("3", ["confirm"]),
    ],
)
def test_arms_are_looked_at_whatever_is_confirmed(tmp_path, confirm, expected):
    found = reported(tmp_path, arms=WRONG_ARM, confirm=f"{ANSWER}confirm: {confirm}\n")
    assert set(found) - {"confirm.stop"} == {*expected, TOLD_ARM} - {"confirm.stop"}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("gate: {set: {model.gate: false}}", ["components.gate.why"]),
        ("gate: {why: g, note: n, set: {model.gate: false}}", ["components.gate.note"]),
        ("gate: {why: g, set: {}}", ["components.gate.set"]),
        ("gat: {why: g, set: {model.gate: false}}", ["components.gat", "combine.of[0]"]),
    ],
)
def test_arms_of_sound_components_are_looked_at(tmp_path, part, expected):
    other = "heads: {why: h, set: {model.hedas: 1}}"
    combine = "combine: {of: [gate, heads], as: leave-one-out}\n"
    wrong = WRONG_ARM.replace("minus-gate", "ungated")
    found = reported(tmp_path, arms=wrong, head=f"components: {{{part}, {other}}}\n{combine}")
    assert sorted(found) == sorted(
        [*expected, "arms.minus-heads.set.model.hedas", "arms.ungated.set.model.gat"]
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("train.lr: {float: [0.001, 0.01]}", "train.lr: {flot: [1, 2]}", {"search.also.train.lr.flot"}),
        ("also: {train.lr: {float: [0.001, 0.01]}}", "also: 3", {"search.also"}),
        ("goal: max", "goal: up", {"search.objectives[0].goal"}),
        ("[{metric: valid/accuracy, goal: max}]", "[]", {"search.objectives"}),
        ("trials_per_arm: 2", "trials_per_arm: 2\n  spaces: [haltign]", {"search.spaces[0]"}),
        ("trials_per_arm: 2", "trials_per_arm: 2\n  note: n", {"search.note"}),
    ],
)
def test_what_else_is_searched_is_looked_at(tmp_path, before, after, expected):
    search = SEARCH.replace(before, after)
    each_arm = "budget: {each_arm: {target: 0.9}}\n"
    found = reported(tmp_path, arms=WRONG_ARM, search=search, confirm=CONFIRM + each_arm)
    assert {each.partition(".flot")[0] for each in found} == {
        *(each.partition(".flot")[0] for each in expected),
        TOLD_ARM,
    }


def test_a_range_that_cannot_be_read_has_no_constraint_or_point_that_is_wrong_for_it(tmp_path):
    more = """  constraints: [train.weight_decay <= train.lr]
  first: [{train.lr: 0.002, train.weight_decay: 0.0}]
"""
    ranges = "train.lr: {float: [1, 0]}, train.weight_decay: {choice: [0.0, 0.005]}"
    search = SEARCH.replace("train.lr: {float: [0.001, 0.01]}", ranges) + more
    assert reported(tmp_path, search=search) == ["search.also.train.lr.float"]


def test_points_and_constraints_of_no_field_are_told_beside_what_the_planner_finds(tmp_path):
    more = """  sampler: tpee
  constraints: [train.zzz < 3]
  first: [{train.lr: 3.0}, {train.rate: 1}]
"""
    assert reported(tmp_path, search=SEARCH + more) == [
        "search.sampler",
        "search.constraints[0]",
        "search.first[0]",
        "search.first[1].train.rate",
    ]


def test_what_a_profile_would_do_wrong_hides_nothing_of_the_rest(tmp_path):
    profiles = "profiles: {small: {baseline.task: 3}}\n"
    found = reported(tmp_path, arms=WRONG_ARM, confirm=CONFIRM + profiles)
    assert {TOLD_ARM, "baseline.task"} <= set(found)


def test_a_secret_is_told_alone_and_quoted_by_nothing(tmp_path):
    train = "  train: {steps: 4, batch_size: 8, lr: 0.001, note: 'http://me:hunter2@there'}\n"
    found = reported(tmp_path, train=train, arms=WRONG_ARM, whole=True)
    assert "hunter2" not in " ".join(found)
    assert any(each.startswith("baseline.train.note") for each in found)


def test_what_is_told_of_a_list_says_where_it_stands_in_the_file(tmp_path):
    rows = "published:\n" + "".join(
        f"  - {{arm: {arm}, metric: {metric}, values: {{near-iid: 1.0}}, source: s}}\n"
        for arm, metric in (("no-one", "accuracy"), ("baseline", "accuracy"), ("baseline", "acuracy"))
    )
    splits = "confirm:\n  seeds: [1, 2, 3]\n  splits:\n  - valid\n  - near-iid\n  - train\n  - far\n"
    found = reported(tmp_path, confirm=f"{splits}{rows}")
    places = ["confirm.splits[0]", "confirm.splits[2]", "confirm.splits[3]"]
    assert found == [*places, "published[0].arm", "published[2].metric"]
    with pytest.raises(SpecError, match=r":15: confirm\.splits\[3\]: .*no test split 'far'"):
        plan_file(tmp_path / "spec.yaml")
