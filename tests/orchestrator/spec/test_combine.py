"""`combine` creates arms from components, with names and reasons, and is refused where it cannot."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.plan.serialise import from_json, to_json
from orchestrator.spec.load import read_spec, to_yaml
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults

HEAD = """
name: combined
question: Which part does it?
baseline:
  task: {name: listops}
  model: {name: universal, width: 16, heads: 2, max_layers: 6}
  train: {steps: 100, batch_size: 4, report_every: 1}
components:
  gate: {why: plain block, set: {model.gate: false}}
  global-halt: {why: each token for itself, set: {model.halt.unit: token}}
  transition: {why: no look ahead, set: {model.halt.transition: false}, drop: [train.ponder_weight]}
search:
  also: {train.ponder_weight: {choice: [0.01, 0.1]}}
  trials_per_arm: 2
  objectives: [{metric: valid/accuracy, goal: max}]
confirm: {seeds: [1, 2, 3], splits: [near-iid]}
"""


def read_combined(
    folder: Path, method: str, names: str = "[gate, global-halt, transition]", arms: str = ""
) -> Any:
    (folder / "spec.yaml").write_text(f"{HEAD}combine: {{of: {names}, as: {method}}}\n{arms}")
    return read_spec(folder / "spec.yaml")


PAIRS = ["minus-gate-and-global-halt", "minus-gate-and-transition", "minus-global-halt-and-transition"]
SINGLE = ["minus-gate", "minus-global-halt", "minus-transition"]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("leave-one-out", SINGLE),
        ("pairs", PAIRS),
        ("add-one-in", ["minus-all", "only-transition", "only-global-halt", "only-gate"]),
        ("all", [*SINGLE, *PAIRS, "minus-all"]),
    ],
)
def test_combine_creates_named_arms(tmp_path: Path, method: str, expected: list[str]) -> None:
    assert list(read_combined(tmp_path, method).spec.arms) == expected


def test_arm_sets_and_drops_the_fields_of_its_components_and_explains_itself(tmp_path: Path) -> None:
    arm = read_combined(tmp_path, "all").spec.arms["minus-gate-and-transition"]
    assert arm.set == {"model.gate": False, "model.halt.transition": False}
    assert arm.drop == ("train.ponder_weight",)
    assert arm.why == "without gate: plain block; transition: no look ahead"
    only_arm = read_combined(tmp_path, "add-one-in").spec.arms["only-gate"]
    assert only_arm.why == "gate alone, without global-halt: each token for itself; transition: no look ahead"


def test_spec_with_created_arms_reads_back_as_the_same_spec(tmp_path: Path) -> None:
    source = read_combined(tmp_path, "all")
    (tmp_path / "copy.yaml").write_text(to_yaml(source.spec))
    copy = read_spec(tmp_path / "copy.yaml")
    assert copy.spec == source.spec
    assert copy.spec.digest == source.spec.digest


def test_plan_stores_the_missing_components_of_each_arm(tmp_path: Path) -> None:
    sweep_plan = plan(read_combined(tmp_path, "all"))
    assert sweep_plan.factors == ("gate", "global-halt", "transition")
    assert sweep_plan.arm("minus-gate-and-transition").without == ("gate", "transition")
    assert sweep_plan.arm("minus-all").without == sweep_plan.factors
    assert from_json(to_json(sweep_plan)) == sweep_plan


@pytest.mark.parametrize(
    ("method", "names", "arms", "code", "path"),
    [
        ("some", "[gate]", "", "invalid-value", "combine.as"),
        ("all", "[gate, gat]", "", "conflicting-fields", "combine.of[1]"),
        ("pairs", "[gate]", "", "conflicting-fields", "combine.of"),
        (
            "leave-one-out",
            "[gate]",
            "arms: {minus-gate: {why: x, set: {model.gate: false}}}",
            "conflicting-fields",
            "arms.minus-gate",
        ),
    ],
)
def test_invalid_combination_is_refused(
    tmp_path: Path, method: str, names: str, arms: str, code: str, path: str
) -> None:
    with expect_faults(code, path):
        read_combined(tmp_path, method, names, arms)


def test_components_that_set_one_field_are_not_removed_together(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        HEAD.replace("{model.halt.unit: token}", "{model.halt: null}")
        + "combine: {of: [global-halt, transition], as: all}\n"
    )
    with expect_faults("conflicting-fields", "components.transition.set.model.halt.transition"):
        read_spec(tmp_path / "spec.yaml")


def test_unused_component_is_refused_unless_an_override_omits_it(tmp_path: Path) -> None:
    with expect_faults("conflicting-fields", "components.transition"):
        read_combined(tmp_path, "all", "[gate, global-halt]")
    read_combined(tmp_path, "all")
    fewer = read_spec(tmp_path / "spec.yaml", ["combine.of=[gate, global-halt]"])
    assert "minus-transition" not in fewer.spec.arms


def test_too_many_combinations_are_refused_before_their_creation(tmp_path: Path) -> None:
    names = [f"part-{number}" for number in range(40)]
    parts = [
        f"  {name}: {{why: a part, set: {{model.width: {2 + index}}}}}" for index, name in enumerate(names)
    ]
    head = HEAD.replace("components:\n", "\n".join(["components:", *parts]) + "\n")
    (tmp_path / "spec.yaml").write_text(f"{head}combine: {{of: [{', '.join(names)}], as: all}}\n")
    with expect_faults("oversized-value", "combine.of"):
        read_spec(tmp_path / "spec.yaml")
