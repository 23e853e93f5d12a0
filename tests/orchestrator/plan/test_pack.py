"""Seeds that are trained together: what a plan says of them, and what it refuses."""

from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console

from orchestrator.errors import PlanError
from orchestrator.plan.checks import check_pack
from orchestrator.plan.faults import Faults
from orchestrator.plan.planner import plan
from orchestrator.plan.render import render
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import Plan
from orchestrator.spec.types import OwnSpec
from tests.orchestrator.plan.small import CONFIRM, baseline, one_arm, spec

TOGETHER = {"pack": 2}


def said(made: Plan) -> str:
    console = Console(width=200, record=True)
    console.print(*render(made))
    return console.export_text()


def with_train(**train: Any) -> dict[str, Any]:
    return {**baseline(), "train": {**baseline()["train"], **train}}


def test_without_it_specs_and_plans_are_what_they_were() -> None:
    alone = spec()
    assert "pack" not in alone.content().get("resources", {})
    assert '"pack"' not in to_json(plan(alone))


def test_a_plan_with_it_is_read_again() -> None:
    made = plan(spec(resources=TOGETHER))
    assert made.resources.pack == 2
    assert from_json(to_json(made)) == made
    assert [each.trial_id for each in made.trials] == [each.trial_id for each in plan(spec()).trials]


def test_memory_is_that_of_all() -> None:
    (one, *_), (many, *_) = plan(spec()).prices, plan(spec(resources=TOGETHER)).prices
    assert one.peak_memory_bytes is not None
    assert many.peak_memory_bytes == 2 * one.peak_memory_bytes
    assert many.checkpoint_bytes == one.checkpoint_bytes


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({"precision": "bf16"}, r"train\.precision must be fp32 where seeds are trained as one, got bf16"),
        ({"accumulate": 2}, r"train\.accumulate must be 1 where .* got 2: batches are run as a whole"),
        ({"compile": "auto"}, r"train\.compile must be False where .* got auto: layers are compiled for one"),
        ({"checkpoint_activations": True}, r"train\.checkpoint_activations must be False where"),
        ({"halve_after": 2}, r"train\.halve_after must be left out where .* drop it, or resources\.pack"),
        (
            {"batch_tokens": 64, "order": "bucketed"},
            r"train\.batch_tokens must be left out where .* as many rows as each other",
        ),
    ],
)
def test_steps_that_cannot_be_taken_as_one_are_refused(train: dict[str, Any], expected: str) -> None:
    with pytest.raises(PlanError, match=rf"resources\.pack: {expected}"):
        plan(spec(baseline=with_train(**train), resources=TOGETHER))


@pytest.mark.parametrize("model", ["sut", "crvnn"])
def test_so_are_models_whose_layers_know_of_one(model: str) -> None:
    shown = rf"resources\.pack: must be left out .* got {model}: .* or take one whose can: gutlb, looped, "
    with pytest.raises(PlanError, match=shown):
        plan(spec(baseline={**baseline(), "model": {"name": model}}, resources=TOGETHER))


def test_so_is_attention_that_knows_of_one() -> None:
    with pytest.raises(PlanError, match=r"resources\.pack: must be left out where attention is flash"):
        plan(one_arm({"model.attention": "flash"}, resources=TOGETHER))


def test_fewer_seeds_than_are_to_be_trained_together_are_refused() -> None:
    with pytest.raises(PlanError, match=r"resources\.pack: must be at most the seeds that are confirmed"):
        plan(spec(resources={"pack": 1 + len(CONFIRM["seeds"])}))


def test_own_code_takes_its_own_steps() -> None:
    asked = OwnSpec.model_validate(
        {
            "name": "own",
            "question": "Whose steps?",
            "trainable": "some.package:train",
            "baseline": {"x": 1},
            "confirm": {"seeds": 2},
            "resources": TOGETHER,
        }
    )
    faults = Faults(asked)
    check_pack(asked, faults)
    shown = r"must be left out where own code runs trials, got pack=2 for the trainable some\.package:train"
    with pytest.raises(PlanError, match=shown):
        faults.raise_if_any()


@pytest.mark.parametrize("pack", [1, 0, 65, 2.0, True])
def test_it_is_a_number_of_seeds(pack: Any) -> None:
    with pytest.raises(ValidationError, match=r"must be (an integer from 2 to|at most) 64"):
        spec(resources={"pack": pack})


def test_a_plan_says_what_a_process_has() -> None:
    shown = said(plan(spec(resources=TOGETHER)))
    assert "A process has 1 CPU core. Up to 2 confirm seeds of an arm are trained in one" in shown
    assert "A trial has 1 CPU core." in said(plan(spec()))
