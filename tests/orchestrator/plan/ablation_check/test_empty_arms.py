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
    "wide-beam": {"train.beam_size": 64},
    "penalty": {"train.length_penalty": 0.6},
    "beam-and-penalty": {"train.beam_size": 8, "train.length_penalty": 1.0},
    "short-answers": {"train.decode_length_max": 5},
    "decode-all": {"train.decode_examples": None},
}
TWO_VALIDATIONS: Mapping[str, Mapping[str, Any]] = {
    "patience": {"train.patience": 0},
    "patience-5": {"train.patience": 5},
    "halve": {"train.halve_after": 0},
    "halve-3": {"train.halve_after": 3},
    "halve-and-patience": {"train.halve_after": 1, "train.patience": 2},
}
SAME_RATES: Mapping[str, Mapping[str, Any]] = {
    "warmup-of-none": {"train.schedule": "warmup"},
    "warmup-of-one": {"train.schedule": "warmup", "train.warmup_steps": 1},
    "cosine-all-held": {"train.schedule": "cosine", "train.hold_steps": 100},
    "cosine-warm-and-held": {"train.schedule": "cosine", "train.warmup_steps": 1, "train.hold_steps": 99},
}
TINY_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "rate-in-its-last-digits": {"train.lr": 5.00000000001e-4},
    "betas-in-their-last-digits": {"train.betas": [0.9, 0.98000000000001]},
    "eps-in-its-last-digits": {"train.eps": 1.00000000001e-8},
    "decay-in-its-last-digits": {"train.weight_decay": 0.10000000000001},
    "clip-in-its-last-digits": {"train.clip": 1.0000000001},
    "threshold-in-its-last-digits": {"model.halt.threshold": 0.9990000000001},
    "dropout-in-its-last-digits": {"model.dropout": 0.1000000000001},
}
EVALUATION_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "eval-batch": {"train.eval_batch_size": 16},
    "eval-tokens": {"train.eval_tokens": 1024},
    "eval-both": {"train.eval_batch_size": 256, "train.eval_tokens": 4096},
    "average-that-is-none": {"train.ema": 1.0e-9},
    "parts": {"train.accumulate": 4},
    "layers-run-again": {"train.checkpoint_activations": True},
}
ONE_VALIDATION: Mapping[str, Mapping[str, Any]] = {
    "last": {"train.select": "last"},
    "by-loss": {"train.select_by": "loss"},
    "mean-of-3": {"train.average_best": 3},
    "mean-of-3-by-loss": {"train.average_best": 3, "train.select_by": "loss"},
    "report-late": {"train.report_every": 200},
    "report-never": {"train.report_every": 1000},
    "patience": {"train.patience": 2},
    "halve": {"train.halve_after": 1},
    "all-of-it": {"train.patience": 3, "train.halve_after": 0, "train.select_by": "loss"},
}
UNREAD_TESTS: Mapping[str, Mapping[str, Any]] = {
    "more-tests": {"task.test_examples": 500},
    "other-lengths": {"task.length_ranges": [[200, 300]]},
    "both": {"task.length_ranges": [[300, 400]], "task.test_examples": 50},
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
            "valid-more": {"train.valid_examples": 5000},
            "head-width": {"model.head_width": 8},
            "feedforward": {"model.feedforward_width": 32},
            "gate-width": {"model.gate_width": 32},
            "kernel": {"model.attention": "math"},
            "kernel-named": {"model.attention": "sdpa"},
            "sizes-written-out": {"model.head_width": 8, "model.feedforward_width": 32},
        },
        ("near-iid",),
    ),
    "universal measured once": (make_settings(train=ONCE), ONE_VALIDATION, ("near-iid",)),
    "universal without gate and halt": (
        make_settings(model={**NO_HALT, "gate": False}, train={**TRAIN, "clip": None, "weight_decay": 0.0}),
        {
            "ponder": {"train.ponder_weight": 1.0},
            "no-ponder": {"train.ponder_weight": 0.0},
            "exit": {"model.early_exit": "none"},
            "exit-batch": {"model.early_exit": "batch"},
            "clip": HUGE_CLIP,
            "clip-too": {"train.clip": 1.0e7},
            "decay": {"train.weight_decay": 1.0e-6},
        },
        ("near-iid",),
    ),
    "temporal latent bottleneck": (
        make_settings({"name": "logical_inference"}, CHUNKED),
        {
            **NEVER_WRITES,
            **TWO_VALIDATIONS,
            "count-of-chunks-by-size": {"model.chunk.count": 7},
            "ponder": {"train.ponder_weight": 0.5},
            "feedforward": {"model.feedforward_width": 32},
        },
        (),
    ),
    "sparse universal transformer": (
        make_settings(model=SPARSE, train=ONCE),
        {**ONE_VALIDATION, "layout": {"model.kernel": "math"}, "beam": {"train.beam_size": 2}},
        ("near-iid",),
    ),
    "written answers": (
        make_settings(STRINGS, {"name": "transformer", "width": 16, "heads": 2, "layers": 1}),
        {
            "greedy-penalty": {"train.length_penalty": 1.0},
            "greedy-penalty-and-length": {"train.length_penalty": 0.6, "train.decode_length_max": 26},
            "decode-more-than-there-are": {"train.decode_examples": 5000},
            "decode-all": {"train.decode_examples": None},
            "decode-as-many": {"train.decode_examples": 200},
            "length-written-out": {"train.decode_length_max": 26},
            "unread-lengths": {"task.test_lengths": [30]},
            "warm": {"train.schedule": "warmup"},
        },
        ("near-iid",),
    ),
    "written answers by a beam": (
        make_settings(STRINGS, WRITER, {**TRAIN, "beam_size": 4}),
        {
            "penalty-of-none": {"train.length_penalty": 1.0e-12},
            "decode-all": {"train.decode_examples": None},
            "length-written-out": {"train.decode_length_max": 26},
            "all-of-it": {"train.length_penalty": 1.0e-10, "train.decode_length_max": 26},
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
    "fewer-written": (
        make_settings(STRINGS, WRITER),
        {"train.decode_examples": 50},
        "only its measurements differ",
    ),
    "half": (
        make_settings(),
        {"model.gate": False, "train.beam_size": 4},
        "setting train.beam_size has no effect next to the other changes",
    ),
    "half-of-a-schedule": (
        make_settings(),
        {"train.lr": 1.0e-3, "train.schedule": "warmup"},
        "setting train.schedule has no effect next to the other changes",
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


@pytest.mark.parametrize(
    "sets", [{"train.select": "last"}, {"train.average_best": 3}, {"train.select_by": "loss"}]
)
def test_selection_of_weights_without_confirm_trials_is_no_arm(sets: Mapping[str, Any]) -> None:
    content = make_arms_spec(make_settings(), {"arm": sets}).model_dump(by_alias=True)
    search = {
        "also": {"train.lr": {"float": [1.0e-4, 1.0e-3]}},
        "trials_per_arm": 2,
        "objectives": [{"metric": "valid/accuracy", "goal": "max"}],
    }
    with expect_faults("arm-has-no-effect", f"arms.arm.set.{next(iter(sets))}"):
        plan(Spec.model_validate({**content, "confirm": None, "search": search}))


EQUAL_ARMS = (
    ({"train.lr": 1.0e-3}, {"train.lr": 1.0e-3, "train.beam_size": 4}),
    ({"model.gate": False}, {"model.gate": False, "model.head_width": 8}),
    ({"train.schedule": "cosine"}, {"train.schedule": "cosine", "train.patience": 5}),
    ({"model.halt": None}, {"model.halt": None, "train.ponder_weight": 0.5}),
)


@pytest.mark.parametrize(("first", "second"), EQUAL_ARMS)
def test_two_arms_with_equal_behaviour_are_refused(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> None:
    with expect_faults("arm-has-no-effect", "arms.second"):
        plan(make_arms_spec(make_settings(), {"first": first, "second": second}, ("near-iid",)))


EFFECTIVE_ARMS: Mapping[str, Mapping[str, Any]] = {
    "last-of-two": {"train.select": "last"},
    "by-loss": {"train.select_by": "loss"},
    "patient": {"train.report_every": 10, "train.patience": 1},
    "halving": {"train.report_every": 10, "train.halve_after": 1},
    "averaged": {"train.ema": 0.9},
    "fewer-valid": {"train.valid_examples": 100},
    "warm": {"train.schedule": "warmup", "train.warmup_steps": 10},
    "fewer-trees": {"task.trees": 20_000},
    "batch": {"train.batch_size": 8},
    "sorted": {"train.order": "bucketed"},
    "eps": {"train.eps": 1.0e-6},
}


def test_arms_with_an_effect_are_accepted() -> None:
    sweep_plan = plan(make_arms_spec(make_settings(), EFFECTIVE_ARMS, ("near-iid",)))
    assert all(check.evidence for check in sweep_plan.proofs[1:])
    assert not any(check.notes for check in sweep_plan.proofs)


LOOPED = {"name": "looped", "width": 16, "heads": 2, "layers": 1, "loops": 2}


@pytest.mark.parametrize(
    ("task", "model", "sets"),
    [
        ({"name": "algorithms"}, LOOPED, {"model.final_norm": "end"}),
        (LISTOPS, SPARSE, {"train.ponder_weight": 0.02}),
    ],
    ids=["a norm elsewhere, by another name", "the weight of a cost that is learned from"],
)
def test_arm_with_another_norm_or_cost_is_accepted(task: Any, model: Any, sets: Any) -> None:
    evidence = plan(make_arms_spec(make_settings(task, model), {"other": sets})).proofs[1].evidence
    assert {"loss", "gradient"} <= set(evidence)


CHUNKS_OF_DEPTH = {"name": "gutlb", "width": 16, "heads": 2, "max_layers": 3}


@pytest.mark.parametrize("sets", [{"model.halt.threshold": 0.9985}, {"model.early_exit": "batch"}])
def test_effect_on_few_examples_is_accepted(sets: Mapping[str, Any]) -> None:
    assert (
        "layers run"
        in plan(make_arms_spec(make_settings(model=CHUNKS_OF_DEPTH), {"other": sets})).proofs[1].evidence
    )


@pytest.mark.parametrize("model", [UNIVERSAL, {**SPARSE, "max_layers": 6}], ids=["one logit", "two logits"])
@pytest.mark.parametrize("threshold", [0.995, 0.98])
def test_threshold_above_some_sums_is_accepted(model: Any, threshold: float) -> None:
    """Initially every layer of the sparse model halts with probability 1/2, so one layer reaches both 0.98
    and 0.999."""
    sweep_plan = plan(
        make_arms_spec(make_settings(model=model), {"lower": {"model.halt.threshold": threshold}})
    )
    assert "layers run" in sweep_plan.proofs[1].evidence
