"""Arms, grid cells, ranges and re-evaluations are judged by long tests, searched values and every training
step."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from orchestrator.spec.types import Spec
from tests.orchestrator.plan.ablation_check.test_empty_arms import (
    LISTOPS,
    SPARSE,
    STRINGS,
    TRAIN,
    UNIVERSAL,
    WRITER,
    make_arms_spec,
    make_settings,
)
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults

DIGITS = {"name": "digits"}
PAIRS = {"name": "logical_inference"}
IN_PARTS = {**TRAIN, "order": "bucketed"}
DEEP = {**UNIVERSAL, "max_layers": 80}
EMPTY_ARMS: Mapping[str, tuple[dict[str, Any], Mapping[str, Any]]] = {
    "moments of one step": (make_settings(train={**TRAIN, "steps": 1}), {"train.betas": [0.5, 0.9]}),
    "tokens for one input": (
        make_settings(PAIRS, WRITER, {**IN_PARTS, "batch_tokens": 4}),
        {"train.batch_tokens": 5},
    ),
    "layers beyond the tokens, none of which halts": (
        make_settings(DIGITS, {**DEEP, "halt": None}),
        {"model.max_layers": 90},
    ),
}
EFFECTIVE_ARMS: Mapping[str, tuple[dict[str, Any], Mapping[str, Any], Sequence[str]]] = {
    "moments of two steps": (make_settings(train={**TRAIN, "steps": 2}), {"train.betas": [0.5, 0.9]}, ()),
    "tokens for two inputs": (
        make_settings(PAIRS, WRITER, {**IN_PARTS, "batch_tokens": 5}),
        {"train.batch_tokens": 6},
        (),
    ),
    "layers that long tests take": (
        make_settings({**LISTOPS, "train_length_max": 10}, DEEP),
        {"model.max_layers": 90},
        ("length-200-300",),
    ),
    **{
        f"threshold {low} for {high} in {layers} layers": (
            make_settings(model={**UNIVERSAL, "max_layers": layers, "halt": {"threshold": high}}),
            {"model.halt.threshold": low},
            (),
        )
        for high, low, layers in ((0.9, 0.91, 2), (0.99, 0.985, 10))
    },
}


@pytest.mark.parametrize("name", EMPTY_ARMS)
def test_arm_without_an_effect_on_any_step_or_input_is_refused(name: str) -> None:
    settings, sets = EMPTY_ARMS[name]
    with expect_faults("arm-has-no-effect", f"arms.arm.set.{next(iter(sets))}"):
        plan(make_arms_spec(settings, {"arm": sets}))


@pytest.mark.parametrize("name", EFFECTIVE_ARMS)
def test_arm_with_an_effect_on_some_step_or_input_is_accepted(name: str) -> None:
    settings, sets, splits = EFFECTIVE_ARMS[name]
    assert plan(make_arms_spec(settings, {"arm": sets}, splits)).proofs[1].evidence


def make_search_spec(settings: Mapping[str, Any], sets: Mapping[str, Any], also: Mapping[str, Any]) -> Spec:
    content = make_arms_spec(settings, {"arm": sets}, ("near-iid",)).model_dump(by_alias=True)
    metric = "exact_match" if settings["task"]["name"] == STRINGS["name"] else "accuracy"
    objectives = [{"metric": f"valid/{metric}", "goal": "max"}]
    search = {"also": dict(also), "trials_per_arm": 2, "objectives": objectives}
    return Spec.model_validate({**content, "search": search})


UNPAID = make_settings(model=SPARSE, train={**TRAIN, "auxiliary_weight": 0.0})
WEIGHT = {"train.auxiliary_weight": {"float": [1.0e-3, 0.1]}}
RATE = {"train.lr": {"float": [1.0e-4, 1.0e-3]}}
BEAMS = {"train.beam_size": {"choice": [1, 4]}}
EFFECTIVE_WITH_SEARCH: Mapping[str, tuple[dict[str, Any], Mapping[str, Any], Mapping[str, Any]]] = {
    "another balance": (UNPAID, {"model.balance": "switch"}, WEIGHT),
    "a penalty of beams": (make_settings(STRINGS, WRITER), {"train.length_penalty": 0.6}, BEAMS),
}


@pytest.mark.parametrize("name", EFFECTIVE_WITH_SEARCH)
def test_arm_that_needs_a_searched_field_for_its_effect_is_accepted(name: str) -> None:
    settings, sets, also = EFFECTIVE_WITH_SEARCH[name]
    assert plan(make_search_spec(settings, sets, also)).proofs[1].evidence
    with expect_faults("arm-has-no-effect", f"arms.arm.set.{next(iter(sets))}"):
        plan(make_search_spec(settings, sets, RATE))


def test_range_that_needs_another_range_for_its_effect_is_accepted() -> None:
    settings, penalty = make_settings(STRINGS, WRITER), {"train.length_penalty": {"float": [0.0, 1.0]}}
    assert plan(make_search_spec(settings, {"train.steps": 200}, {**BEAMS, **penalty})).arms
    with expect_faults("param-has-no-effect", "arms.arm", *(f"search.also.{path}" for path in penalty)):
        plan(make_search_spec(settings, {"train.steps": 200}, {**RATE, **penalty}))


ENDS = {**TRAIN, "decode_length_max": 1}
IDLE_REEVALUATIONS: tuple[tuple[dict[str, Any], str, list[Any]], ...] = (
    (make_settings(), "model.halt.threshold", [0.5, 0.5000000000001]),
    (make_settings(DIGITS), "model.max_layers", [80, 90]),
    (make_settings(STRINGS, WRITER), "train.decode_length_max", [5, 26]),
    (make_settings(STRINGS, WRITER, ENDS), "train.beam_size", [4]),
)
USEFUL_REEVALUATIONS: tuple[tuple[dict[str, Any], str, list[Any]], ...] = (
    (make_settings(), "model.halt.threshold", [0.5, 0.9]),
    (make_settings(STRINGS, WRITER), "train.beam_size", [2, 4]),
)


def make_posthoc_spec(settings: Mapping[str, Any], path: str, values: list[Any]) -> Spec:
    split = "test" if settings["task"] == DIGITS else "near-iid"
    content = make_arms_spec(settings, {}, (split,)).model_dump(by_alias=True)
    return Spec.model_validate({**content, "posthoc": {path: values}})


@pytest.mark.parametrize(("settings", "path", "values"), IDLE_REEVALUATIONS)
def test_each_idle_value_of_a_reevaluation_is_refused(settings: Any, path: str, values: list[Any]) -> None:
    code, position = ("invalid-value", "[1]") if len(values) > 1 else ("re-evaluation-has-no-effect", "")
    with expect_faults(code, f"posthoc.{path}{position}"):
        plan(make_posthoc_spec(settings, path, values))


@pytest.mark.parametrize(("settings", "path", "values"), USEFUL_REEVALUATIONS)
def test_reevaluation_with_useful_values_is_accepted(settings: Any, path: str, values: list[Any]) -> None:
    assert len(plan(make_posthoc_spec(settings, path, values)).posthoc) == 2
