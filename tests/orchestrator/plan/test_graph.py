"""What a plan refuses of captured training steps."""

from typing import Any

import pytest

from orchestrator.errors import PlanError
from tests.orchestrator.plan.small import BASELINE, one_arm, spec
from tests.support.specs.planned import plan


def graphed(model: dict[str, Any] | None = None, **train: Any) -> dict[str, Any]:
    return {
        **BASELINE,
        "model": BASELINE["model"] if model is None else model,
        "train": {**BASELINE["train"], "graph": True, **train},
    }


def test_an_arm_that_is_only_captured_changes_nothing() -> None:
    with pytest.raises(PlanError, match=r"arm changes nothing against baseline: with train\.graph set"):
        plan(one_arm({"train.graph": True}, resources={"gpus": 1}))


def test_without_a_gpu_it_is_refused() -> None:
    with pytest.raises(PlanError, match=r"graph: true must run on a CUDA device, and resources\.gpus is 0"):
        plan(spec(baseline=graphed()))


def test_with_a_gpu_it_is_planned() -> None:
    made = plan(spec(baseline=graphed(), resources={"gpus": 1}))
    assert made.arms[0].settings["train"]["graph"] is True
    assert "graph" not in plan(spec()).arms[0].settings["train"]


@pytest.mark.parametrize(
    ("baseline", "why"),
    [
        (graphed({"name": "sut", "width": 16}), r"train\.graph.*got sut: the host decides"),
        (
            graphed({"name": "tlb", "width": 16, "heads": 2, "attention": "flash"}, precision="bf16"),
            r"train\.graph.*got tlb: attention 'flash' cannot leave out the padding",
        ),
        (graphed(checkpoint_activations=True), "graph must be false with checkpoint_activations"),
        (graphed(ranks=2), "graph must be false with ranks"),
        (graphed(batch_tokens=64, order="bucketed"), "graph must be false with batch_tokens"),
    ],
)
def test_what_cannot_be_captured_is_refused(baseline: dict[str, Any], why: str) -> None:
    with pytest.raises(PlanError, match=why):
        plan(spec(baseline=baseline, resources={"gpus": 1}))
