"""Arms made of components: which, called what, why; written out once; refused where they cannot be."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import SpecError
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.spec.load import read_spec, to_yaml
from tests.support.specs.planned import plan

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


def read(folder: Path, way: str, of: str = "[gate, global-halt, transition]", more: str = "") -> Any:
    (folder / "spec.yaml").write_text(f"{HEAD}combine: {{of: {of}, as: {way}}}\n{more}")
    return read_spec(folder / "spec.yaml")


PAIRS = ["minus-gate-and-global-halt", "minus-gate-and-transition", "minus-global-halt-and-transition"]
SINGLE = ["minus-gate", "minus-global-halt", "minus-transition"]


@pytest.mark.parametrize(
    ("way", "names"),
    [
        ("leave-one-out", SINGLE),
        ("pairs", PAIRS),
        ("add-one-in", ["minus-all", "only-transition", "only-global-halt", "only-gate"]),
        ("all", [*SINGLE, *PAIRS, "minus-all"]),
    ],
)
def test_arms_are_made_with_names(tmp_path: Path, way: str, names: list[str]) -> None:
    assert list(read(tmp_path, way).spec.arms) == names


def test_an_arm_sets_and_drops_what_its_components_do_and_says_why(tmp_path: Path) -> None:
    arm = read(tmp_path, "all").spec.arms["minus-gate-and-transition"]
    assert arm.set == {"model.gate": False, "model.halt.transition": False}
    assert arm.drop == ("train.ponder_weight",)
    assert arm.why == "without gate: plain block; transition: no look ahead"
    only = read(tmp_path, "add-one-in").spec.arms["only-gate"]
    assert only.why == "gate alone, without global-halt: each token for itself; transition: no look ahead"


def test_what_is_launched_reads_back_as_the_same_spec(tmp_path: Path) -> None:
    source = read(tmp_path, "all")
    (tmp_path / "again.yaml").write_text(to_yaml(source.spec))
    again = read_spec(tmp_path / "again.yaml")
    assert again.spec == source.spec
    assert again.spec.digest == source.spec.digest


def test_overrides_change_components_and_how_they_are_combined(tmp_path: Path) -> None:
    read(tmp_path, "all")
    changes = ["combine.as=leave-one-out", "combine.of=[gate, transition]", "components.gate.why=why not"]
    found = read_spec(tmp_path / "spec.yaml", changes).spec
    assert {name: arm.why for name, arm in found.arms.items()} == {
        "minus-gate": "without gate: why not",
        "minus-transition": "without transition: no look ahead",
    }


def test_the_plan_knows_what_each_arm_lacks(tmp_path: Path) -> None:
    found = plan(read(tmp_path, "all"))
    assert found.factors == ("gate", "global-halt", "transition")
    assert found.arm("minus-gate-and-transition").without == ("gate", "transition")
    assert found.arm("minus-all").without == found.factors
    assert from_json(to_json(found)) == found


@pytest.mark.parametrize(
    ("way", "of", "more", "message"),
    [
        (
            "some",
            "[gate]",
            "",
            r"combine\.as: must be leave-one-out, add-one-in, pairs or all, got the text 'some'",
        ),
        ("all", "[gate, gat]", "", r"combine\.of\[1\]: no component named 'gat'\. Did you mean 'gate'"),
        ("pairs", "[gate]", "", r"combine\.of: must name at least 2 components for pairs, got 1"),
        (
            "leave-one-out",
            "[gate]",
            "arms: {minus-gate: {why: x, set: {model.gate: false}}}",
            r"arms\.minus-gate: is also created by combine, which removes gate, with other settings",
        ),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path: Path, way: str, of: str, more: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read(tmp_path, way, of, more)


def test_components_that_set_one_field_are_not_taken_away_together(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        HEAD.replace("{model.halt.unit: token}", "{model.halt: null}")
        + "combine: {of: [global-halt, transition], as: all}\n"
    )
    with pytest.raises(
        SpecError,
        match=r"components\.transition\.set\.model\.halt\.transition: must not set model\.halt, which",
    ):
        read_spec(tmp_path / "spec.yaml")


def test_a_component_that_no_arm_is_made_of_is_refused_unless_an_override_leaves_it_out(
    tmp_path: Path,
) -> None:
    unused = r"components\.transition: must be in combine\.of, or no arm is made of it: add transition there"
    with pytest.raises(SpecError, match=unused):
        read(tmp_path, "all", "[gate, global-halt]")
    read(tmp_path, "all")
    fewer = read_spec(tmp_path / "spec.yaml", ["combine.of=[gate, global-halt]"])
    assert "minus-transition" not in fewer.spec.arms


def test_long_names_and_components_for_nothing_are_refused(tmp_path: Path) -> None:
    long = "g" * 40
    text = (
        HEAD.replace("global-halt:", f"{long}:") + f"combine: {{of: [gate, {long}, transition], as: pairs}}\n"
    )
    (tmp_path / "spec.yaml").write_text(
        text.replace("transition:", f"t{long}:").replace("transition]", f"t{long}]")
    )
    with pytest.raises(SpecError, match="must make names of at most 64 letters"):
        read_spec(tmp_path / "spec.yaml")
    (tmp_path / "spec.yaml").write_text(HEAD)
    with pytest.raises(SpecError, match="components: needs combine, which says which arms to make of them"):
        read_spec(tmp_path / "spec.yaml")


def test_what_no_sweep_could_hold_is_refused_before_it_is_made(tmp_path: Path) -> None:
    names = [f"part-{number}" for number in range(40)]
    parts = [
        f"  {name}: {{why: a part, set: {{model.width: {2 + place}}}}}" for place, name in enumerate(names)
    ]
    head = HEAD.replace("components:\n", "\n".join(["components:", *parts]) + "\n")
    (tmp_path / "spec.yaml").write_text(f"{head}combine: {{of: [{', '.join(names)}], as: all}}\n")
    with pytest.raises(SpecError, match=r"at most 255 arms, got 1,099,511,627,775 of 40 components with all"):
        read_spec(tmp_path / "spec.yaml")
