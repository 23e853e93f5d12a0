"""Errors of building or running a model are faults of the spec without a traceback."""

from typing import Any

import pytest

from orchestrator.errors import FaultCode, InputError, PlanError
from orchestrator.plan.planner import plan
from tests.orchestrator.plan.small_specs import CONFIRM, SEARCH, make_baseline, make_one_arm_spec, make_spec
from tests.support.specs.refusals import expect_faults
from trainables.models import universal


@pytest.fixture
def limited_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the universal transformer to eight layers."""
    init = universal.Encoder.__init__

    def refuse(self: universal.Encoder, config: Any) -> None:
        if config.max_layers > 8:
            raise ValueError(f"at most 8 layers fit, got {config.max_layers}")
        init(self, config)

    monkeypatch.setattr(universal.Encoder, "__init__", refuse)


@pytest.mark.usefixtures("limited_encoder")
@pytest.mark.parametrize(
    ("invalid_spec", "code", "path"),
    [
        (make_spec(baseline=make_baseline(max_layers=9)), "arm-cannot-be-trained", "baseline"),
        (make_one_arm_spec({"model.max_layers": 10}), "arm-cannot-be-trained", "arms.arm"),
        (
            make_spec(search={**SEARCH, "spaces": [], "also": {"model.max_layers": {"int": [4, 12]}}}),
            "nothing-to-draw",
            "search.also.model.max_layers",
        ),
        (make_spec(posthoc={"model.max_layers": [8, 20]}), "invalid-value", "posthoc.model.max_layers[1]"),
    ],
)
def test_model_that_cannot_be_built_is_refused_at_its_path(invalid_spec: Any, code: str, path: str) -> None:
    with expect_faults(code, path):
        plan(invalid_spec)


def test_precision_that_needs_a_gpu_is_planned_but_not_timed() -> None:
    half_baseline = {**make_baseline(), "train": {"steps": 5, "precision": "fp16"}}
    half_spec = make_spec(baseline=half_baseline, resources={"gpus": 0.5})
    assert plan(half_spec).proofs
    with pytest.raises(InputError, match="fp16"):
        plan(half_spec, calibrate=True)


def test_missing_vocabulary_is_a_fault_of_the_task() -> None:
    vocabulary_spec = make_spec(baseline={**make_baseline(), "task": {"name": "wmt14"}})
    with pytest.raises(PlanError) as caught:
        plan(vocabulary_spec)
    assert (FaultCode.INVALID_VALUE, "baseline.task") in {
        (fault.code, fault.path) for fault in caught.value.faults
    }


@pytest.mark.parametrize(
    ("path", "value", "code", "position"),
    [
        ("task.data_seed", 3, "invalid-value", "[0]"),
        ("task.test_examples", 5, "re-evaluation-has-no-effect", ""),
        ("model.attention", "math", "re-evaluation-has-no-effect", ""),
    ],
)
def test_reevaluation_on_training_data_or_without_an_effect_is_refused(
    path: str, value: Any, code: str, position: str
) -> None:
    """Resampled tests may contain training examples; another kernel only changes the order of sums."""
    with expect_faults(code, f"posthoc.{path}{position}"):
        plan(make_spec(posthoc={path: [value]}))


def test_reevaluation_with_more_test_examples_is_accepted() -> None:
    confirm = {**CONFIRM, "splits": ["length-200-300"]}
    assert plan(make_spec(confirm=confirm, posthoc={"task.test_examples": [5]})).posthoc
