"""Arms, grid cells, ranges and re-evaluations are judged by long tests, searched values and every training
step."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from orchestrator.spec.types import Spec
from tests.orchestrator.plan.ablation_check.test_empty_arms import (
    CHUNKED,
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

LONG = {**TRAIN, "steps": 20_000, "report_every": 500}
DIGITS = {"name": "digits"}
PAIRS = {"name": "logical_inference"}
IN_PARTS = {**TRAIN, "order": "bucketed"}
DEEP = {**UNIVERSAL, "max_layers": 80}
GATED = {"name": "ndr", "width": 16, "heads": 2, "layers": 2, "test_layers": 3, "gate_dropout": 0.05}
EMPTY_ARMS: Mapping[str, tuple[dict[str, Any], Mapping[str, Any]]] = {
    "a rise of one step": (make_settings(train=LONG), {"train.schedule": "warmup", "train.warmup_steps": 1}),
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
    "gates shut where none were": (
        make_settings(model={**GATED, "layers": 1, "gate_dropout": 0.0}),
        {"model.gate_dropout": 0.01},
        (),
    ),
    "moments of two steps": (make_settings(train={**TRAIN, "steps": 2}), {"train.betas": [0.5, 0.9]}, ()),
    "tokens for two inputs": (
        make_settings(PAIRS, WRITER, {**IN_PARTS, "batch_tokens": 5}),
        {"train.batch_tokens": 6},
        (),
    ),
    "layers that inputs take": (
        make_settings(DIGITS, UNIVERSAL | {"max_layers": 20}),
        {"model.max_layers": 30},
        (),
    ),
    "layers that long tests take": (
        make_settings({**LISTOPS, "train_length_max": 10}, DEEP),
        {"model.max_layers": 90},
        ("length-200-300",),
    ),
    "chunks that cut long tests alone": (
        make_settings(LISTOPS, {**CHUNKED, "chunk": {"size": 150}}),
        {"model.chunk.size": 250},
        ("length-200-300",),
    ),
    **{
        f"threshold {low} for {high} in {layers} layers": (
            make_settings(model={**UNIVERSAL, "max_layers": layers, "halt": {"threshold": high}}),
            {"model.halt.threshold": low},
            (),
        )
        for high, low, layers in ((0.9, 0.91, 2), (0.9, 0.85, 2), (0.5, 0.55, 4), (0.99, 0.985, 10))
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
    "parts of a batch": (UNPAID, {"train.accumulate": 2}, WEIGHT),
    "a penalty of beams": (make_settings(STRINGS, WRITER), {"train.length_penalty": 0.6}, BEAMS),
}


@pytest.mark.parametrize("name", EFFECTIVE_WITH_SEARCH)
def test_arm_that_needs_a_searched_field_for_its_effect_is_accepted(name: str) -> None:
    settings, sets, also = EFFECTIVE_WITH_SEARCH[name]
    assert plan(make_search_spec(settings, sets, also)).proofs[1].evidence
    with expect_faults("arm-has-no-effect", f"arms.arm.set.{next(iter(sets))}"):
        plan(make_search_spec(settings, sets, RATE))


def test_arms_that_differ_in_an_effective_field_are_distinct() -> None:
    content = make_search_spec(UNPAID, {"train.lr": 1.0e-3}, WEIGHT).model_dump(by_alias=True)
    sets = {"train.lr": 1.0e-3, "model.balance": "switch"}
    arms = {**content["arms"], "other": {"why": "as it says", "set": sets}}
    assert len(plan(Spec.model_validate({**content, "arms": arms})).arms) == 3
    equal_arms = {
        **content,
        "arms": arms,
        "search": {**content["search"], "also": {"train.clip": {"float": [0.5, 1.0]}}},
    }
    with expect_faults("arm-has-no-effect", "arms.other"):
        plan(Spec.model_validate(equal_arms))


def test_range_that_needs_another_range_for_its_effect_is_accepted() -> None:
    settings, penalty = make_settings(STRINGS, WRITER), {"train.length_penalty": {"float": [0.0, 1.0]}}
    assert plan(make_search_spec(settings, {"train.steps": 200}, {**BEAMS, **penalty})).arms
    with expect_faults("param-has-no-effect", "arms.arm", *(f"search.also.{path}" for path in penalty)):
        plan(make_search_spec(settings, {"train.steps": 200}, {**RATE, **penalty}))


@pytest.mark.parametrize(
    ("field", "values", "path"),
    [
        ("train.eval_batch_size", [64, 128], "grid.train.eval_batch_size"),
        ("train.clip", [1.0, 1.0e7, 1.0e8], "grid"),
    ],
    ids=["the second has what is written", "the second and the third"],
)
def test_grid_cells_with_equal_behaviour_are_refused(field: str, values: list[Any], path: str) -> None:
    """One cell has the settings of the baseline as they are written in the spec."""
    content = make_arms_spec(make_settings(), {}).model_dump(by_alias=True)
    with expect_faults("arm-has-no-effect", path):
        plan(Spec.model_validate({**content, "grid": {field: values}}))


def test_grid_cell_lists_its_changes_against_the_first_cell() -> None:
    content = make_arms_spec(make_settings(), {}).model_dump(by_alias=True)
    second = plan(Spec.model_validate({**content, "grid": {"model.max_layers": [6, 4]}})).arms[1]
    assert [(change.path, change.before, change.after) for change in second.changes] == [
        ("model.max_layers", 6, 4)
    ]


ENDS = {**TRAIN, "decode_length_max": 1}
IDLE_REEVALUATIONS: tuple[tuple[dict[str, Any], str, list[Any]], ...] = (
    (make_settings(), "model.halt.threshold", [0.5, 0.9990000000001]),
    (make_settings(), "model.halt.threshold", [0.5, 0.5000000000001]),
    (make_settings(model=GATED), "model.gate_dropout", [0.06]),
    (make_settings(DIGITS), "model.max_layers", [80, 90]),
    (make_settings(STRINGS, WRITER), "train.decode_length_max", [26]),
    (make_settings(STRINGS, WRITER), "train.decode_length_max", [5, 26]),
    (make_settings(STRINGS, WRITER, ENDS), "train.beam_size", [4]),
    (make_settings(STRINGS, WRITER, {**TRAIN, "beam_size": 4}), "train.length_penalty", [1.0e-12]),
)
USEFUL_REEVALUATIONS: tuple[tuple[dict[str, Any], str, list[Any]], ...] = (
    (make_settings(), "model.halt.threshold", [0.5, 0.9]),
    (make_settings(DIGITS), "model.max_layers", [20, 60]),
    (make_settings(STRINGS, WRITER), "train.decode_length_max", [5, 10]),
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
