"""Arms without an effect are refused; arms that only change measurements get a note.

Each group of arms is planned over one baseline, so that faults of neighbouring arms must be distinguished.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import FaultCode, PlanError
from orchestrator.plan import planner
from orchestrator.plan.ablation_check import probe as probing
from orchestrator.spec.types import Spec
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults

LISTOPS = {"name": "listops"}
UNIVERSAL = {"name": "universal", "width": 16, "heads": 2, "max_layers": 4}
TRAIN = {"steps": 100, "batch_size": 4, "report_every": 50}
ONCE = {**TRAIN, "report_every": 100}
STRINGS = {"name": "transduction", "train_examples": 2000, "valid_examples": 200, "test_examples": 100}
CHUNKED = {"name": "tlb", "width": 16, "heads": 2, "layers": 2, "memory": {"slots": 4}}
SPARSE = {
    "name": "sut",
    "width": 16,
    "max_layers": 3,
    "attention": {"experts": 4, "active": 2, "heads": 1, "head_width": 8, "window": 8},
    "feedforward": {"experts": 4, "active": 2, "width": 16},
}
WRITER = {"name": "transformer", "width": 16, "heads": 2, "layers": 1}
HUGE_CLIP = {"train.clip": 1.0e9}
NEVER_WRITES: Mapping[str, Mapping[str, Any]] = {
    "beam": {"train.beam_size": 4},
    "penalty": {"train.length_penalty": 0.6},
    "short-answers": {"train.decode_length_max": 5},
    "decode-all": {"train.decode_examples": None},
}
TWO_VALIDATIONS: Mapping[str, Mapping[str, Any]] = {
    "patience": {"train.patience": 0},
    "halve": {"train.halve_after": 0},
}
SAME_RATES: Mapping[str, Mapping[str, Any]] = {
    "warmup-of-none": {"train.schedule": "warmup"},
    "cosine-warm-and-held": {"train.schedule": "cosine", "train.warmup_steps": 1, "train.hold_steps": 99},
}
TINY_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "rate-in-its-last-digits": {"train.lr": 5.00000000001e-4},
    "threshold-in-its-last-digits": {"model.halt.threshold": 0.9990000000001},
    "dropout-in-its-last-digits": {"model.dropout": 0.1000000000001},
}
EVALUATION_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "eval-batch": {"train.eval_batch_size": 16},
    "eval-tokens": {"train.eval_tokens": 1024},
    "average-that-is-none": {"train.ema": 1.0e-9},
    "parts": {"train.accumulate": 4},
}
ONE_VALIDATION: Mapping[str, Mapping[str, Any]] = {
    "last": {"train.select": "last"},
    "by-loss": {"train.select_by": "loss"},
    "mean-of-3": {"train.average_best": 3},
    "report-late": {"train.report_every": 200},
    "patience": {"train.patience": 2},
}
UNREAD_TESTS: Mapping[str, Mapping[str, Any]] = {
    "more-tests": {"task.test_examples": 500},
    "other-lengths": {"task.length_ranges": [[200, 300]]},
}
NO_HALT = {**UNIVERSAL, "halt": None}


def make_settings(task: Any = LISTOPS, model: Any = UNIVERSAL, train: Any = TRAIN) -> dict[str, Any]:
    return {"task": task, "model": model, "train": train}


GROUPS: Mapping[str, tuple[dict[str, Any], Mapping[str, Mapping[str, Any]], tuple[str, ...]]] = {
    "universal": (
        make_settings(),
        {
            **NEVER_WRITES,
            **TWO_VALIDATIONS,
            **SAME_RATES,
            **EVALUATION_CHANGES,
            **TINY_CHANGES,
            **UNREAD_TESTS,
            "auxiliary": {"train.auxiliary_weight": 0.5},
            "valid-all": {"train.valid_examples": 1000},
            "head-width": {"model.head_width": 8},
            "feedforward": {"model.feedforward_width": 32},
            "gate-width": {"model.gate_width": 32},
            "kernel": {"model.attention": "math"},
            "halted-proposals": {"model.halt.halted_proposals": True},
        },
        ("near-iid",),
    ),
    "universal measured once": (make_settings(train=ONCE), ONE_VALIDATION, ("near-iid",)),
    "universal without gate and halt": (
        make_settings(model={**NO_HALT, "gate": False}, train={**TRAIN, "clip": None, "weight_decay": 0.0}),
        {
            "ponder": {"train.ponder_weight": 1.0},
            "exit": {"model.early_exit": "none"},
            "clip": HUGE_CLIP,
            "decay": {"train.weight_decay": 1.0e-6},
        },
        ("near-iid",),
    ),
    "written answers": (
        make_settings(STRINGS, {"name": "transformer", "width": 16, "heads": 2, "layers": 1}),
        {
            "greedy-penalty": {"train.length_penalty": 1.0},
            "decode-more-than-there-are": {"train.decode_examples": 5000},
            "decode-all": {"train.decode_examples": None},
            "length-written-out": {"train.decode_length_max": 26},
            "unread-lengths": {"task.test_lengths": [30]},
        },
        ("near-iid",),
    ),
}
NOTED_ARMS: Mapping[str, tuple[dict[str, Any], Mapping[str, Any], str]] = {
    "report-often": (
        make_settings(train={**TRAIN, "select": "last"}),
        {"train.report_every": 10},
        "only its measurements differ",
    ),
    "half": (
        make_settings(),
        {"model.gate": False, "train.beam_size": 4},
        "setting train.beam_size has no effect next to the other changes",
    ),
}


def make_arms_spec(
    settings: Mapping[str, Any], arms: Mapping[str, Mapping[str, Any]], splits: Any = (), **parts: Any
) -> Spec:
    return Spec.model_validate(
        {
            "name": "lies",
            "question": "Is it reported?",
            "baseline": settings,
            "arms": {name: {"why": "as it says", "set": dict(sets)} for name, sets in arms.items()},
            "confirm": {"seeds": [1, 2, 3], "splits": list(splits)},
            **parts,
        }
    )


@pytest.mark.parametrize("group", GROUPS)
def test_arms_that_change_nothing_are_refused(group: str) -> None:
    settings, arms, splits = GROUPS[group]
    with pytest.raises(PlanError) as error:
        plan(make_arms_spec(settings, arms, splits))
    faults = error.value.faults
    assert {fault.code for fault in faults} == {FaultCode.ARM_HAS_NO_EFFECT}, error.value
    assert {fault.path.split(".")[1] for fault in faults} == arms.keys()


@pytest.mark.parametrize("name", NOTED_ARMS)
def test_arm_that_changes_only_measurements_or_has_an_idle_half_gets_a_note(name: str) -> None:
    settings, sets, expected = NOTED_ARMS[name]
    notes = plan(make_arms_spec(settings, {name: sets}, ("near-iid",))).proofs[1].notes
    assert any(expected in note for note in notes), notes


def test_check_of_faults_alone_finds_the_same_without_notes() -> None:
    settings, sets, _ = NOTED_ARMS[next(iter(NOTED_ARMS))]
    arms_spec = make_arms_spec(settings, {"arm": sets}, ("near-iid",))
    noted_plan, bare_plan = plan(arms_spec), planner.plan(arms_spec, probe=probing.Probe(faults_only=True))
    assert any(check.notes for check in noted_plan.proofs)
    assert bare_plan.proofs == tuple(replace(check, notes=()) for check in noted_plan.proofs)
    empty_spec = make_arms_spec(settings, {"lie": {"train.beam_size": 4}}, ("near-iid",))
    with expect_faults("arm-has-no-effect", "arms.lie.set.train.beam_size"):
        planner.plan(empty_spec, probe=probing.Probe(faults_only=True))


def test_selection_of_weights_without_confirm_trials_is_no_arm() -> None:
    content = make_arms_spec(make_settings(), {"arm": {"train.select": "last"}}).model_dump(by_alias=True)
    search = {
        "also": {"train.lr": {"float": [1.0e-4, 1.0e-3]}},
        "trials_per_arm": 2,
        "objectives": [{"metric": "valid/accuracy", "goal": "max"}],
    }
    with expect_faults("arm-has-no-effect", "arms.arm.set.train.select"):
        plan(Spec.model_validate({**content, "confirm": None, "search": search}))


EQUAL_ARMS = (
    ({"model.gate": False}, {"model.gate": False, "model.head_width": 8}),
    ({"train.schedule": "cosine"}, {"train.schedule": "cosine", "train.patience": 5}),
)


@pytest.mark.parametrize(("first", "second"), EQUAL_ARMS)
def test_two_arms_with_equal_behaviour_are_refused(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> None:
    with expect_faults("arm-has-no-effect", "arms.second"):
        plan(make_arms_spec(make_settings(), {"first": first, "second": second}, ("near-iid",)))


EFFECTIVE_ARMS: Mapping[str, Mapping[str, Any]] = {
    "last-of-two": {"train.select": "last"},
    "patient": {"train.report_every": 10, "train.patience": 1},
    "averaged": {"train.ema": 0.9},
    "fewer-valid": {"train.valid_examples": 100},
}


def test_arms_with_an_effect_are_accepted() -> None:
    sweep_plan = plan(make_arms_spec(make_settings(), EFFECTIVE_ARMS, ("near-iid",)))
    assert all(check.evidence for check in sweep_plan.proofs[1:])
    assert not any(check.notes for check in sweep_plan.proofs)


LOOPED = {"name": "looped", "width": 16, "heads": 2, "layers": 1, "loops": 2}


def test_effect_on_few_examples_is_accepted() -> None:
    chunked = {"name": "gutlb", "width": 16, "heads": 2, "max_layers": 3}
    arms_spec = make_arms_spec(make_settings(model=chunked), {"other": {"model.halt.threshold": 0.9985}})
    assert "layers run" in plan(arms_spec).proofs[1].evidence


@pytest.mark.parametrize("model", [UNIVERSAL, {**SPARSE, "max_layers": 6}], ids=["one logit", "two logits"])
def test_threshold_above_some_sums_is_accepted(model: Any) -> None:
    """Initially every layer of the sparse model halts with probability 1/2, so one layer reaches both 0.98
    and 0.999."""
    arms_spec = make_arms_spec(make_settings(model=model), {"lower": {"model.halt.threshold": 0.98}})
    assert "layers run" in plan(arms_spec).proofs[1].evidence
