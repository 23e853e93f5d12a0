"""A field that affects no objective cannot be searched, because all of its trials would score the same."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from orchestrator.spec.types import Spec
from tests.orchestrator.plan.ablation_check.test_empty_arms import (
    STRINGS,
    TRAIN,
    UNIVERSAL,
    WRITER,
    make_arms_spec,
    make_settings,
)
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults

FREQUENT_REPORTS = {**TRAIN, "report_every": 10}
RATE = {"train.lr": {"float": [1.0e-4, 1.0e-3]}}
EXITS = {"model.early_exit": {"choice": ["none", "batch", "compact"]}}
BEAMS = {"train.beam_size": {"choice": [1, 4]}}
PENALTIES = {"train.length_penalty": {"float": [0.0, 1.0]}}
SELECTION = {"train.select_by": {"choice": ["accuracy", "loss"]}}
INTERVALS = {"train.report_every": {"choice": [5, 10]}}
PATIENCE = {"train.patience": {"int": [1, 3]}}
ACCURACY = ("valid/accuracy", "max")
STRINGS_WRITTEN = make_settings(STRINGS, WRITER)

Case = tuple[Mapping[str, Any], Mapping[str, Any], Sequence[tuple[str, str]]]
IDLE_FIELDS: Mapping[str, Case] = {
    "how halting saves work": (make_settings(), EXITS, [ACCURACY]),
    "how answers are written": (STRINGS_WRITTEN, BEAMS, [ACCURACY]),
    "how long they may be": (
        STRINGS_WRITTEN,
        {"train.decode_length_max": {"choice": [5, 9]}},
        [("valid/accuracy_whole", "max"), ("valid/loss", "min")],
    ),
}
EFFECTIVE_FIELDS: Mapping[str, Case] = {
    "work of an evaluation": (make_settings(), EXITS, [("valid/flops", "min")]),
    "answers": (STRINGS_WRITTEN, {**BEAMS, **PENALTIES}, [("valid/exact_match", "max")]),
    "gates shut at few places": (
        make_settings(model={"name": "ndr", "width": 16, "heads": 2, "layers": 1, "test_layers": 2}),
        {"model.gate_dropout": {"float": [0.05, 0.06]}},
        [ACCURACY],
    ),
    "how often, where patience is searched": (
        make_settings(train=FREQUENT_REPORTS),
        {**INTERVALS, **PATIENCE},
        [ACCURACY],
    ),
}
TEST_ONLY_FIELDS: Mapping[str, Case] = {
    "which validation is better": (make_settings(train=FREQUENT_REPORTS), SELECTION, [ACCURACY]),
    "how often there is one": (make_settings(train=FREQUENT_REPORTS), INTERVALS, [ACCURACY]),
}


def make_search_spec(case: Case) -> Spec:
    settings, also, objectives = case
    content = make_arms_spec(settings, {}, ("near-iid",)).model_dump(by_alias=True)
    search = {
        "also": {**RATE, **also},
        "trials_per_arm": 2,
        "objectives": [{"metric": metric, "goal": goal} for metric, goal in objectives],
    }
    return Spec.model_validate({**content, "search": search})


@pytest.mark.parametrize("name", IDLE_FIELDS)
def test_field_that_affects_no_objective_is_refused(name: str) -> None:
    _, also, _ = IDLE_FIELDS[name]
    with expect_faults("param-has-no-effect", *(f"search.also.{path}" for path in also)):
        plan(make_search_spec(IDLE_FIELDS[name]))


@pytest.mark.parametrize("name", EFFECTIVE_FIELDS)
def test_field_that_affects_an_objective_is_searched(name: str) -> None:
    assert plan(make_search_spec(EFFECTIVE_FIELDS[name])).arms


@pytest.mark.parametrize("name", TEST_ONLY_FIELDS)
def test_field_that_affects_only_tests_is_refused(name: str) -> None:
    (path,) = TEST_ONLY_FIELDS[name][1]
    with expect_faults("invalid-value", f"search.also.{path}"):
        plan(make_search_spec(TEST_ONLY_FIELDS[name]))


ALL_RUN = {**UNIVERSAL, "early_exit": "none"}


def test_constant_work_is_no_objective() -> None:
    """If all layers run even after halting, every evaluation costs the same."""
    case: Case = (make_settings(model=ALL_RUN), {}, [("valid/flops", "min")])
    with expect_faults("metric-does-not-vary", "search.objectives[0].metric"):
        plan(make_search_spec(case))
    assert plan(make_search_spec((make_settings(), {}, case[2]))).arms
