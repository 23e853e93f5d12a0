"""Arms that say they change something and do not: all refused, or named where they only measure otherwise.

Each group is planned at once over one baseline, so that every lie must be told apart from its neighbours.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan import planner
from orchestrator.plan.ablation_check import probe as probing
from orchestrator.spec.types import Spec
from tests.support.specs.planned import plan

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
FOREVER = {"train.clip": 1.0e9}
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
NUDGED: Mapping[str, Mapping[str, Any]] = {
    "rate-in-its-last-digits": {"train.lr": 5.00000000001e-4},
    "betas-in-their-last-digits": {"train.betas": [0.9, 0.98000000000001]},
    "eps-in-its-last-digits": {"train.eps": 1.00000000001e-8},
    "decay-in-its-last-digits": {"train.weight_decay": 0.10000000000001},
    "clip-in-its-last-digits": {"train.clip": 1.0000000001},
    "threshold-in-its-last-digits": {"model.halt.threshold": 0.9990000000001},
    "dropout-in-its-last-digits": {"model.dropout": 0.1000000000001},
}
RUN_OTHERWISE: Mapping[str, Mapping[str, Any]] = {
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


def system(task: Any = LISTOPS, model: Any = UNIVERSAL, train: Any = TRAIN) -> dict[str, Any]:
    return {"task": task, "model": model, "train": train}


GROUPS: Mapping[str, tuple[dict[str, Any], Mapping[str, Mapping[str, Any]], tuple[str, ...]]] = {
    "universal": (
        system(),
        {
            **NEVER_WRITES,
            **TWO_VALIDATIONS,
            **SAME_RATES,
            **RUN_OTHERWISE,
            **NUDGED,
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
    "universal measured once": (system(train=ONCE), ONE_VALIDATION, ("near-iid",)),
    "universal without gate and halt": (
        system(model={**NO_HALT, "gate": False}, train={**TRAIN, "clip": None, "weight_decay": 0.0}),
        {
            "ponder": {"train.ponder_weight": 1.0},
            "no-ponder": {"train.ponder_weight": 0.0},
            "exit": {"model.early_exit": "none"},
            "exit-batch": {"model.early_exit": "batch"},
            "clip": FOREVER,
            "clip-too": {"train.clip": 1.0e7},
            "decay": {"train.weight_decay": 1.0e-6},
        },
        ("near-iid",),
    ),
    "temporal latent bottleneck": (
        system({"name": "logical_inference"}, CHUNKED),
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
        system(model=SPARSE, train=ONCE),
        {**ONE_VALIDATION, "layout": {"model.kernel": "math"}, "beam": {"train.beam_size": 2}},
        ("near-iid",),
    ),
    "written answers": (
        system(STRINGS, {"name": "transformer", "width": 16, "heads": 2, "layers": 1}),
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
        system(STRINGS, WRITER, {**TRAIN, "beam_size": 4}),
        {
            "penalty-of-none": {"train.length_penalty": 1.0e-12},
            "decode-all": {"train.decode_examples": None},
            "length-written-out": {"train.decode_length_max": 26},
            "all-of-it": {"train.length_penalty": 1.0e-10, "train.decode_length_max": 26},
        },
        ("near-iid",),
    ),
}
NAMED: Mapping[str, tuple[dict[str, Any], Mapping[str, Any], str]] = {
    "report-often": (
        system(train={**TRAIN, "select": "last"}),
        {"train.report_every": 10},
        "only its measurements differ",
    ),
    "fewer-written": (
        system(STRINGS, WRITER),
        {"train.decode_examples": 50},
        "only its measurements differ",
    ),
    "half": (
        system(),
        {"model.gate": False, "train.beam_size": 4},
        "setting train.beam_size has no effect next to the other changes",
    ),
    "half-of-a-schedule": (
        system(),
        {"train.lr": 1.0e-3, "train.schedule": "warmup"},
        "setting train.schedule has no effect next to the other changes",
    ),
}
LIES = [(group, name) for group, (_, arms, _) in GROUPS.items() for name in arms]


def spec_of(
    settings: Mapping[str, Any], arms: Mapping[str, Mapping[str, Any]], splits: Any = (), **more: Any
) -> Spec:
    return Spec.model_validate(
        {
            "name": "lies",
            "question": "Is it told?",
            "baseline": settings,
            "arms": {name: {"why": "as it says", "set": dict(sets)} for name, sets in arms.items()},
            "confirm": {"seeds": [1, 2, 3], "splits": list(splits)},
            **more,
        }
    )


_told: dict[str, frozenset[str]] = {}


def refused(group: str) -> frozenset[str]:
    """The arms of a group that are told to change nothing."""
    if group not in _told:
        settings, arms, splits = GROUPS[group]
        with pytest.raises(PlanError) as caught:
            plan(spec_of(settings, arms, splits))
        lies = [fault for fault in caught.value.faults if "changes nothing against baseline" in fault.message]
        assert len(lies) == len(caught.value.faults), caught.value
        _told[group] = frozenset(fault.path.split(".")[1] for fault in lies)
    return _told[group]


@pytest.mark.parametrize(("group", "name"), LIES)
def test_an_arm_that_changes_nothing_is_refused(group: str, name: str) -> None:
    assert name in refused(group)


@pytest.mark.parametrize("name", NAMED)
def test_an_arm_that_only_measures_otherwise_or_half_of_which_is_idle_is_named(name: str) -> None:
    settings, sets, shown = NAMED[name]
    notes = plan(spec_of(settings, {name: sets}, ("near-iid",))).proofs[1].notes
    assert any(shown in note for note in notes), notes


def test_who_looks_for_faults_alone_finds_the_same_without_notes() -> None:
    settings, sets, _ = NAMED[next(iter(NAMED))]
    asked = spec_of(settings, {"arm": sets}, ("near-iid",))
    noted, bare = plan(asked), planner.plan(asked, probe=probing.Probe(faults_only=True))
    assert any(check.notes for check in noted.proofs)
    assert bare.proofs == tuple(replace(check, notes=()) for check in noted.proofs)
    lie = spec_of(settings, {"lie": {"train.beam_size": 4}}, ("near-iid",))
    with pytest.raises(PlanError, match="changes nothing against baseline"):
        planner.plan(lie, probe=probing.Probe(faults_only=True))


@pytest.mark.parametrize(
    "sets", [{"train.select": "last"}, {"train.average_best": 3}, {"train.select_by": "loss"}]
)
def test_weights_are_selected_for_nobody_where_nothing_is_confirmed(sets: Mapping[str, Any]) -> None:
    written = spec_of(system(), {"arm": sets}).model_dump(by_alias=True)
    search = {
        "also": {"train.lr": {"float": [1.0e-4, 1.0e-3]}},
        "trials_per_arm": 2,
        "objectives": [{"metric": "valid/accuracy", "goal": "max"}],
    }
    with pytest.raises(PlanError, match="changes nothing against baseline"):
        plan(Spec.model_validate({**written, "confirm": None, "search": search}))


TWINS = (
    ({"train.lr": 1.0e-3}, {"train.lr": 1.0e-3, "train.beam_size": 4}),
    ({"model.gate": False}, {"model.gate": False, "model.head_width": 8}),
    ({"train.schedule": "cosine"}, {"train.schedule": "cosine", "train.patience": 5}),
    ({"model.halt": None}, {"model.halt": None, "train.ponder_weight": 0.5}),
)


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_two_arms_that_behave_alike_are_refused(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    with pytest.raises(PlanError, match=r"arms\.other: behaves like one although its settings differ"):
        plan(spec_of(system(), {"one": one, "other": other}, ("near-iid",)))


HONEST: Mapping[str, Mapping[str, Any]] = {
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


def test_arms_that_do_what_they_say_are_not_refused() -> None:
    found = plan(spec_of(system(), HONEST, ("near-iid",)))
    assert all(check.evidence for check in found.proofs[1:])
    assert not any(check.notes for check in found.proofs)


LOOPED = {"name": "looped", "width": 16, "heads": 2, "layers": 1, "loops": 2}


@pytest.mark.parametrize(
    ("task", "model", "sets"),
    [
        ({"name": "algorithms"}, LOOPED, {"model.final_norm": "end"}),
        (LISTOPS, SPARSE, {"train.ponder_weight": 0.02}),
    ],
    ids=["a norm elsewhere, by another name", "the weight of a cost that is learned from"],
)
def test_what_differs_beside_names_and_constant_costs_is_not_refused(
    task: Any, model: Any, sets: Any
) -> None:
    evidence = plan(spec_of(system(task, model), {"other": sets})).proofs[1].evidence
    assert {"loss", "gradient"} <= set(evidence)


CHUNKS_OF_DEPTH = {"name": "gutlb", "width": 16, "heads": 2, "max_layers": 3}


@pytest.mark.parametrize("sets", [{"model.halt.threshold": 0.9985}, {"model.early_exit": "batch"}])
def test_what_shows_in_few_of_many_examples_is_not_refused(sets: Mapping[str, Any]) -> None:
    assert "layers run" in plan(spec_of(system(model=CHUNKS_OF_DEPTH), {"other": sets})).proofs[1].evidence


@pytest.mark.parametrize("model", [UNIVERSAL, {**SPARSE, "max_layers": 6}], ids=["one logit", "two logits"])
@pytest.mark.parametrize("threshold", [0.995, 0.98])
def test_a_threshold_that_some_sum_falls_short_of_is_not_refused(model: Any, threshold: float) -> None:
    """At first every layer of the sparse model halts with 1/2: 0.98 and 0.999 are reached by the same one."""
    found = plan(spec_of(system(model=model), {"lower": {"model.halt.threshold": threshold}}))
    assert "layers run" in found.proofs[1].evidence
