"""Plans accept or refuse captured training steps."""

from typing import Any

import pytest

from tests.orchestrator.plan.small_specs import BASELINE, make_one_arm_spec, make_spec
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults


def make_graph_baseline(model: dict[str, Any] | None = None, **train: Any) -> dict[str, Any]:
    return {
        **BASELINE,
        "model": BASELINE["model"] if model is None else model,
        "train": {**BASELINE["train"], "graph": True, **train},
    }


def test_capture_of_a_training_step_is_no_arm() -> None:
    with expect_faults("arm-has-no-effect", "arms.arm.set.train.graph"):
        plan(make_one_arm_spec({"train.graph": True}, resources={"gpus": 1}))


def test_capture_without_a_gpu_is_refused() -> None:
    with expect_faults("conflicting-fields", "baseline.train.graph"):
        plan(make_spec(baseline=make_graph_baseline()))


def test_capture_with_a_gpu_is_planned() -> None:
    sweep_plan = plan(make_spec(baseline=make_graph_baseline(), resources={"gpus": 1}))
    assert sweep_plan.arms[0].settings["train"]["graph"] is True
    assert "graph" not in plan(make_spec()).arms[0].settings["train"]


@pytest.mark.parametrize(
    ("baseline", "path"),
    [
        (make_graph_baseline({"name": "sut", "width": 16}), "baseline.train.graph"),
        (
            make_graph_baseline(
                {"name": "tlb", "width": 16, "heads": 2, "attention": "flash"}, precision="bf16"
            ),
            "baseline.train.graph",
        ),
        (make_graph_baseline(checkpoint_activations=True), "baseline.train"),
        (make_graph_baseline(ranks=2), "baseline.train"),
        (make_graph_baseline(batch_tokens=64, order="bucketed"), "baseline.train"),
    ],
)
def test_steps_that_cannot_be_captured_are_refused(baseline: dict[str, Any], path: str) -> None:
    with expect_faults("invalid-value", path):
        plan(make_spec(baseline=baseline, resources={"gpus": 1}))
