"""Arms, cells, ranges and readings judged by all that trials do: long tests, searched values, every step."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from orchestrator.errors import PlanError
from orchestrator.spec.types import Spec
from tests.orchestrator.plan.ablation_check.test_empty_arms import (
    CHUNKED,
    LISTOPS,
    SPARSE,
    STRINGS,
    TRAIN,
    UNIVERSAL,
    WRITER,
    spec_of,
    system,
)
from tests.support.specs.planned import plan

LONG = {**TRAIN, "steps": 20_000, "report_every": 500}
RANGER = {**TRAIN, "optimizer": "ranger"}
DIGITS = {"name": "digits"}
PAIRS = {"name": "logical_inference"}
IN_PARTS = {**TRAIN, "order": "bucketed"}
DEEP = {**UNIVERSAL, "max_layers": 80}
GATED = {"name": "ndr", "width": 16, "heads": 2, "layers": 2, "test_layers": 3, "gate_dropout": 0.05}
LIES: Mapping[str, tuple[dict[str, Any], Mapping[str, Any]]] = {
    "a rise of one step": (system(train=LONG), {"train.schedule": "warmup", "train.warmup_steps": 1}),
    "moments of one step": (system(train={**TRAIN, "steps": 1}), {"train.betas": [0.5, 0.9]}),
    "tokens for one input": (
        system(PAIRS, WRITER, {**IN_PARTS, "batch_tokens": 4}),
        {"train.batch_tokens": 5},
    ),
    "layers beyond the tokens, none of which halts": (
        system(DIGITS, {**DEEP, "halt": None}),
        {"model.max_layers": 90},
    ),
}
HONEST: Mapping[str, tuple[dict[str, Any], Mapping[str, Any], Sequence[str]]] = {
    "gates shut where none were": (
        system(model={**GATED, "layers": 1, "gate_dropout": 0.0}),
        {"model.gate_dropout": 0.01},
        (),
    ),
    "moments of two steps": (system(train={**TRAIN, "steps": 2}), {"train.betas": [0.5, 0.9]}, ()),
    "tokens for two inputs": (
        system(PAIRS, WRITER, {**IN_PARTS, "batch_tokens": 5}),
        {"train.batch_tokens": 6},
        (),
    ),
    "layers that inputs take": (system(DIGITS, UNIVERSAL | {"max_layers": 20}), {"model.max_layers": 30}, ()),
    "layers that long tests take": (
        system({**LISTOPS, "train_length_max": 10}, DEEP),
        {"model.max_layers": 90},
        ("length-200-300",),
    ),
    "chunks that cut long tests alone": (
        system(LISTOPS, {**CHUNKED, "chunk": {"size": 150}}),
        {"model.chunk.size": 250},
        ("length-200-300",),
    ),
    **{
        f"threshold {low} for {high} in {layers} layers": (
            system(model={**UNIVERSAL, "max_layers": layers, "halt": {"threshold": high}}),
            {"model.halt.threshold": low},
            (),
        )
        for high, low, layers in ((0.9, 0.91, 2), (0.9, 0.85, 2), (0.5, 0.55, 4), (0.99, 0.985, 10))
    },
}


@pytest.mark.parametrize("name", LIES)
def test_what_no_step_and_no_input_shows_is_refused(name: str) -> None:
    settings, sets = LIES[name]
    with pytest.raises(PlanError, match=r"arms\.arm\.set\S* arm changes nothing against baseline"):
        plan(spec_of(settings, {"arm": sets}))


@pytest.mark.parametrize("name", HONEST)
def test_what_some_step_or_some_input_shows_is_not_refused(name: str) -> None:
    settings, sets, splits = HONEST[name]
    assert plan(spec_of(settings, {"arm": sets}, splits)).proofs[1].evidence


def searching(settings: Mapping[str, Any], sets: Mapping[str, Any], also: Mapping[str, Any]) -> Spec:
    written = spec_of(settings, {"arm": sets}, ("near-iid",)).model_dump(by_alias=True)
    by = "exact_match" if settings["task"]["name"] == STRINGS["name"] else "accuracy"
    objectives = [{"metric": f"valid/{by}", "goal": "max"}]
    search = {"also": dict(also), "trials_per_arm": 2, "objectives": objectives}
    return Spec.model_validate({**written, "search": search})


UNPAID = system(model=SPARSE, train={**TRAIN, "auxiliary_weight": 0.0})
WEIGHT = {"train.auxiliary_weight": {"float": [1.0e-3, 0.1]}}
RATE = {"train.lr": {"float": [1.0e-4, 1.0e-3]}}
BEAMS = {"train.beam_size": {"choice": [1, 4]}}
FREED: Mapping[str, tuple[dict[str, Any], Mapping[str, Any], Mapping[str, Any]]] = {
    "another balance": (UNPAID, {"model.balance": "switch"}, WEIGHT),
    "parts of a batch": (UNPAID, {"train.accumulate": 2}, WEIGHT),
    "a penalty of beams": (system(STRINGS, WRITER), {"train.length_penalty": 0.6}, BEAMS),
}


@pytest.mark.parametrize("name", FREED)
def test_an_arm_that_acts_beside_searched_values_is_not_refused(name: str) -> None:
    settings, sets, also = FREED[name]
    assert plan(searching(settings, sets, also)).proofs[1].evidence
    with pytest.raises(PlanError, match="arm changes nothing against baseline"):
        plan(searching(settings, sets, RATE))


def test_arms_that_differ_beside_searched_values_are_no_twins() -> None:
    written = searching(UNPAID, {"train.lr": 1.0e-3}, WEIGHT).model_dump(by_alias=True)
    sets = {"train.lr": 1.0e-3, "model.balance": "switch"}
    arms = {**written["arms"], "other": {"why": "as it says", "set": sets}}
    assert len(plan(Spec.model_validate({**written, "arms": arms})).arms) == 3
    twins = {
        **written,
        "arms": arms,
        "search": {**written["search"], "also": {"train.clip": {"float": [0.5, 1.0]}}},
    }
    with pytest.raises(PlanError, match=r"arms\.other: behaves like arm"):
        plan(Spec.model_validate(twins))


def test_a_range_that_acts_beside_another_is_not_refused() -> None:
    settings, penalty = system(STRINGS, WRITER), {"train.length_penalty": {"float": [0.0, 1.0]}}
    assert plan(searching(settings, {"train.steps": 200}, {**BEAMS, **penalty})).arms
    with pytest.raises(PlanError, match=r"varies train\.length_penalty, which changes nothing in baseline"):
        plan(searching(settings, {"train.steps": 200}, {**RATE, **penalty}))


@pytest.mark.parametrize(
    ("field", "values", "why"),
    [
        ("train.eval_batch_size", [64, 128], "baseline.* changes nothing against baseline"),
        ("train.clip", [1.0, 1.0e7, 1.0e8], r"behaves like baseline\[train\.clip=10000000\.0\]"),
    ],
    ids=["the second has what is written", "the second and the third"],
)
def test_cells_of_a_grid_that_are_one_system_are_refused(field: str, values: list[Any], why: str) -> None:
    """One cell has what the baseline has as it is written, which is no cell it could be compared with."""
    written = spec_of(system(), {}).model_dump(by_alias=True)
    with pytest.raises(PlanError, match=rf"grid\S*: .*{why}"):
        plan(Spec.model_validate({**written, "grid": {field: values}}))


def test_a_cell_tells_what_it_changes_against_the_first() -> None:
    written = spec_of(system(), {}).model_dump(by_alias=True)
    second = plan(Spec.model_validate({**written, "grid": {"model.max_layers": [6, 4]}})).arms[1]
    assert [(change.path, change.before, change.after) for change in second.changes] == [
        ("model.max_layers", 6, 4)
    ]


ENDS = {**TRAIN, "decode_length_max": 1}
READ_IN_VAIN: tuple[tuple[dict[str, Any], str, list[Any], str], ...] = (
    (system(), "model.halt.threshold", [0.5, 0.9990000000001], r"\[1\]: must be read otherwise than what is"),
    (system(), "model.halt.threshold", [0.5, 0.5000000000001], r"\[1\]: must be read otherwise than 0\.5"),
    (system(model=GATED), "model.gate_dropout", [0.06], "evaluation gives the same with every value"),
    (system(DIGITS), "model.max_layers", [80, 90], r"\[1\]: must be read otherwise than 80"),
    (system(STRINGS, WRITER), "train.decode_length_max", [26], "answers are written alike"),
    (system(STRINGS, WRITER), "train.decode_length_max", [5, 26], r"\[1\]: must be read otherwise than what"),
    (system(STRINGS, WRITER, ENDS), "train.beam_size", [4], "answers are written alike"),
    (
        system(STRINGS, WRITER, {**TRAIN, "beam_size": 4}),
        "train.length_penalty",
        [1.0e-12],
        "answers are written alike",
    ),
)
READ: tuple[tuple[dict[str, Any], str, list[Any]], ...] = (
    (system(), "model.halt.threshold", [0.5, 0.9]),
    (system(DIGITS), "model.max_layers", [20, 60]),
    (system(STRINGS, WRITER), "train.decode_length_max", [5, 10]),
    (system(STRINGS, WRITER), "train.beam_size", [2, 4]),
)


def reading(settings: Mapping[str, Any], path: str, values: list[Any]) -> Spec:
    split = "test" if settings["task"] == DIGITS else "near-iid"
    written = spec_of(settings, {}, (split,)).model_dump(by_alias=True)
    return Spec.model_validate({**written, "posthoc": {path: values}})


@pytest.mark.parametrize(("settings", "path", "values", "why"), READ_IN_VAIN)
def test_each_value_that_is_read_in_vain_is_refused(
    settings: Any, path: str, values: list[Any], why: str
) -> None:
    with pytest.raises(PlanError, match=why) as caught:
        plan(reading(settings, path, values))
    assert len(caught.value.faults) == 1


@pytest.mark.parametrize(("settings", "path", "values"), READ)
def test_values_that_are_all_read_otherwise_are_not_refused(
    settings: Any, path: str, values: list[Any]
) -> None:
    assert len(plan(reading(settings, path, values)).posthoc) == 2
