"""What no objective of a search can tell of is not searched: equal trials, of which chance chooses."""

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

OFTEN = {**TRAIN, "report_every": 10}
RATE = {"train.lr": {"float": [1.0e-4, 1.0e-3]}}
EXITS = {"model.early_exit": {"choice": ["none", "batch", "compact"]}}
BEAMS = {"train.beam_size": {"choice": [1, 4]}}
PENALTIES = {"train.length_penalty": {"float": [0.0, 1.0]}}
BETTER = {"train.select_by": {"choice": ["accuracy", "loss"]}}
EVERY = {"train.report_every": {"choice": [5, 10]}}
PATIENCE = {"train.patience": {"int": [1, 3]}}
ACCURACY = ("valid/accuracy", "max")
STRINGS_WRITTEN = system(STRINGS, WRITER)
CHUNKED_WITH_EXIT = {key: value for key, value in CHUNKED.items() if key != "layers"} | {"name": "gutlb"}

Case = tuple[Mapping[str, Any], Mapping[str, Any], Sequence[tuple[str, str]]]
IN_VAIN: Mapping[str, Case] = {
    "how halting saves work": (system(), EXITS, [ACCURACY]),
    "how experts are spared": (system(model=SPARSE), EXITS, [ACCURACY]),
    "how chunks are left": (system(model=CHUNKED_WITH_EXIT), EXITS, [ACCURACY]),
    "how answers are written": (STRINGS_WRITTEN, BEAMS, [ACCURACY]),
    "how they are compared": (STRINGS_WRITTEN, {**BEAMS, **PENALTIES}, [ACCURACY]),
    "how long they may be": (
        STRINGS_WRITTEN,
        {"train.decode_length_max": {"choice": [5, 9]}},
        [("valid/accuracy_whole", "max"), ("valid/loss", "min")],
    ),
}
MOVES: Mapping[str, Case] = {
    "layers that are run": (system(), EXITS, [("valid/saved", "max")]),
    "work of an evaluation": (system(), EXITS, [("valid/flops", "min")]),
    "speed beside accuracy": (system(), EXITS, [ACCURACY, ("train/tokens_per_s", "max")]),
    "answers": (STRINGS_WRITTEN, {**BEAMS, **PENALTIES}, [("valid/exact_match", "max")]),
    "answers beside accuracy": (STRINGS_WRITTEN, BEAMS, [ACCURACY, ("valid/exact_match", "max")]),
    "thresholds": (system(), {"model.halt.threshold": {"float": [0.99, 0.999]}}, [ACCURACY]),
    "gates shut at few places": (
        system(model={"name": "ndr", "width": 16, "heads": 2, "layers": 1, "test_layers": 2}),
        {"model.gate_dropout": {"float": [0.05, 0.06]}},
        [ACCURACY],
    ),
    "which validation is better": (system(train={**OFTEN, "patience": 2}), BETTER, [ACCURACY]),
    "which one, where patience is searched": (system(train=OFTEN), {**BETTER, **PATIENCE}, [ACCURACY]),
    "how often, where patience is searched": (system(train=OFTEN), {**EVERY, **PATIENCE}, [ACCURACY]),
}
CHOSEN: Mapping[str, Case] = {
    "which validation is better": (system(train=OFTEN), BETTER, [ACCURACY]),
    "how often there is one": (system(train=OFTEN), EVERY, [ACCURACY]),
}


def searching(case: Case) -> Spec:
    settings, also, objectives = case
    written = spec_of(settings, {}, ("near-iid",)).model_dump(by_alias=True)
    search = {
        "also": {**RATE, **also},
        "trials_per_arm": 2,
        "objectives": [{"metric": metric, "goal": goal} for metric, goal in objectives],
    }
    return Spec.model_validate({**written, "search": search})


@pytest.mark.parametrize("name", IN_VAIN)
def test_what_moves_no_objective_is_not_searched(name: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan(searching(IN_VAIN[name]))
    _, also, objectives = IN_VAIN[name]
    shown = f"changes no objective ({', '.join(metric for metric, _ in objectives)}) in baseline"
    faults = {fault.path: fault.message for fault in caught.value.faults}
    assert faults == {f"search.also.{path}": f"varies {path}, which {shown}" for path in also}


@pytest.mark.parametrize("name", MOVES)
def test_what_moves_an_objective_is_searched(name: str) -> None:
    assert plan(searching(MOVES[name])).arms


@pytest.mark.parametrize("name", CHOSEN)
def test_what_decides_for_tests_alone_is_not_searched(name: str) -> None:
    with pytest.raises(PlanError, match="must not be searched"):
        plan(searching(CHOSEN[name]))


ALL_RUN = {**UNIVERSAL, "early_exit": "none"}


def test_work_that_is_never_saved_is_no_objective_and_no_outcome() -> None:
    """All layers are run where they halt too: every evaluation costs what the sizes say."""
    case: Case = (system(model=ALL_RUN), {}, [("valid/flops", "min")])
    with pytest.raises(
        PlanError, match=r"objectives\[0\]\.metric: must vary, got valid/flops, which the sett"
    ):
        plan(searching(case))
    assert plan(searching((system(), {}, case[2]))).arms
    written = spec_of(system(LISTOPS, ALL_RUN), {"plain": {"model.gate": False}}, ("near-iid",))
    asked = {**written.model_dump(by_alias=True), "answer": {"metric": "near-iid/flops"}}
    with pytest.raises(PlanError, match=r"answer\.metric: must differ between seeds, got near-iid/flops"):
        plan(Spec.model_validate(asked))
    exits = {"compact": {"why": "as it says", "set": {"model.early_exit": "compact"}}}
    assert plan(Spec.model_validate({**asked, "arms": {**asked["arms"], **exits}})).answer
