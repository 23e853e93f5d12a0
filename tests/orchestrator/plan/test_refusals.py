"""Errors of building or running a model are faults of the spec without a traceback."""

from typing import Any

import pytest

from orchestrator.errors import FaultCode, InputError, PlanError
from orchestrator.plan.planner import plan
from search_spaces.paths import with_value
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


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("model.halt.threshold", "model.halt is null"),
        ("model.memory.slots", "model.memory"),
        ("model.width.more.still", "model.width is 8"),
    ],
)
def test_path_through_a_missing_setting_is_refused(path: str, message: str) -> None:
    settings = {"model": {"width": 8, "halt": None}}
    with pytest.raises(ValueError, match=message):
        with_value(settings, path, 1)
    assert settings == {"model": {"width": 8, "halt": None}}


def test_setting_a_value_copies_only_changed_parts() -> None:
    settings = {"model": {"halt": {"unit": "token"}, "sizes": [1]}, "train": {"lr": 0.1}}
    new_settings = with_value(settings, "model.halt.unit", "sequence")
    assert settings["model"]["halt"] == {"unit": "token"}
    assert new_settings["model"]["halt"] == {"unit": "sequence"}
    assert new_settings["train"] is settings["train"]


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
        ("task.near_iid_examples", 500, "invalid-value", "[0]"),
        ("task.train_length_max", 50, "re-evaluation-has-no-effect", ""),
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
