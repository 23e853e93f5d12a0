"""Every seeded mutant of a spec is refused or noted; no published arm is."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from orchestrator.errors import PlanError
from orchestrator.plan import planner
from orchestrator.plan.ablation_check import passes, probe
from orchestrator.plan.ablation_check.differences import LEARNS, LEARNS_MOVED, READS
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.arms import resolve
from orchestrator.plan.faults import Faults
from orchestrator.plan.types import ArmCheck
from tests.orchestrator.plan.small import ARMS, SEARCH, baseline, full, one_arm, spec
from tests.support.specs.planned import plan

GUT: Mapping[str, Mapping[str, Any]] = {
    "no-global-halt": {"model.halt.unit": "token"},
    "no-gate": {"model.gate": False},
    "no-transition": {"model.halt.transition": False},
    "upperbound": {"model.early_exit": "none"},
    "published-break": {"model.early_exit": "batch"},
    "no-halt-upperbound": {"model.halt": None},
    "no-act": {"train.ponder_weight": 0.0},
    "mean-pool": {"model.pooling": "mean"},
    "kv-from-s": {"model.kv": "mixture"},
    "halt-origin-1": {"model.halt.origin": 1},
    "prefix": {"model.halt.rule": "prefix"},
    "ut": {
        "model.gate": False,
        "model.pooling": "mean",
        "model.halt.unit": "token",
        "model.halt.transition": False,
    },
    "ut-no-halt": {"model.gate": False, "model.pooling": "mean", "model.halt": None},
    "transformer": {"model.name": "transformer", "model.pooling": "mean"},
    "deeper": {"model.max_layers": 9},
    "shallower": {"model.max_layers": 2},
    "eager": {"model.halt.threshold": 0.99},
    "wider": {"model.width": 32},
    "wide-gate": {"model.gate_width": 64},
    "no-dropout": {"model.dropout": 0.0, "model.attention_dropout": 0.0},
    "longer": {"train.steps": 200},
    "faster": {"train.lr": 1e-2},
    "scheduled": {"train.schedule": "cosine", "train.warmup_steps": 10},
    "unclipped": {"train.clip": None},
    "longer-inputs": {"task.train_length_max": 50},
}
UT: Mapping[str, Mapping[str, Any]] = {
    "end-pool": {"model.pooling": "end"},
    "no-halt": {"model.halt": None},
    "gated": {"model.gate": True},
    "keys-from-states": {"model.kv": "states"},
    "global-halt": {"model.halt.unit": "sequence"},
}
UT_BASELINE = baseline(gate=False, pooling="mean", halt={"unit": "token", "transition": False})


def arms_of(catalogue: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: {"why": "as published", "set": dict(sets)} for name, sets in catalogue.items()}


@pytest.fixture(scope="module")
def proofs() -> dict[str, ArmCheck]:
    return {check.arm: check for check in plan(spec(arms=arms_of(GUT))).proofs}


@pytest.mark.parametrize("name", sorted(GUT))
def test_no_false_alarm_for_arms_of_the_gated_universal_transformer(
    name: str, proofs: dict[str, ArmCheck]
) -> None:
    assert proofs[name].evidence


def test_no_false_alarm_for_arms_of_the_universal_transformer() -> None:
    found = plan(spec(baseline=UT_BASELINE, arms=arms_of(UT))).proofs
    assert all(each.evidence for each in found[1:])


def test_no_false_alarm_for_an_arm_without_training_of_its_halting() -> None:
    found = plan(one_arm({"train.ponder_weight": 0.5}, baseline=UT_BASELINE)).proofs
    assert "gradient" in found[1].evidence


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("upperbound", "FLOPs"),
        ("published-break", "layers run"),
        ("no-gate", "weights"),
        ("no-act", "gradient"),
        ("longer", "training"),
        ("longer-inputs", "task"),
        ("deeper", "FLOPs"),
    ],
)
def test_evidence_is_what_the_arm_changes(name: str, evidence: str, proofs: dict[str, ArmCheck]) -> None:
    assert evidence in proofs[name].evidence


def test_compute_only_arms_change_neither_loss_nor_gradient(proofs: dict[str, ArmCheck]) -> None:
    for name in ("upperbound", "published-break"):
        assert not {"loss", "gradient", "weights"} & set(proofs[name].evidence), proofs[name].evidence
        assert proofs[name].loss == proofs["baseline"].loss


def test_proof_shows_module_tree_parameters_and_flops(proofs: dict[str, ArmCheck]) -> None:
    base, gate, wide = proofs["baseline"], proofs["no-gate"], proofs["wide-gate"]
    assert gate.module_tree_removed == ("encoder.block.gate: FeedForward",)
    assert gate.module_tree_added == ()
    assert gate.parameters == base.parameters - (2 * 16 * 32 + 32 + 16)
    assert gate.flops_max < base.flops_max
    assert any("encoder.block.gate.inner.weight 64x16" in line for line in wide.module_tree_added)
    assert proofs["upperbound"].flops_min == base.flops_max
    assert proofs["no-halt-upperbound"].module_tree_removed == ("encoder.halt: HaltingProbability",)


def typo(random_: random.Random, arms: dict[str, Any]) -> dict[str, Any]:
    """Drops a letter of a path."""
    name = random_.choice(sorted(arms))
    ((path, value),) = arms[name]["set"].items()
    place = random_.randrange(len("model."), len(path))
    wrong = path[:place] + path[place + 1 :]
    return {**arms, name: {**arms[name], "set": {wrong: value}}}


def wrong_value(random_: random.Random, arms: dict[str, Any]) -> dict[str, Any]:
    """Gives a field a value of another type."""
    name = random_.choice(sorted(arms))
    ((path, _),) = arms[name]["set"].items()
    return {**arms, name: {**arms[name], "set": {path: random_.choice(["fasle", 7, 0.5])}}}


def swapped(random_: random.Random, arms: dict[str, Any]) -> dict[str, Any]:
    """Two arms have each other's changes."""
    one, other = random_.sample(sorted(arms), 2)
    return {**arms, one: arms[other], other: arms[one]}


def without_effect(random_: random.Random, arms: dict[str, Any]) -> dict[str, Any]:
    """A field that nothing reads here, or that says what is so already."""
    path, value = random_.choice(
        [
            ("model.head_width", 8),
            ("model.feedforward_width", 32),
            ("model.gate_width", 32),
            ("model.kv", "states"),
            ("train.eval_batch_size", 64),
        ]
    )
    return {**arms, "extra": {"why": "a slip", "set": {path: value}}}


MUTATIONS: list[Callable[[random.Random, dict[str, Any]], dict[str, Any]]] = [
    typo,
    wrong_value,
    without_effect,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("seed", range(2))
def test_every_mutant_is_refused(mutate: Callable[..., dict[str, Any]], seed: int) -> None:
    arms = mutate(random.Random(seed), {name: dict(arm) for name, arm in ARMS.items()})
    without_search = {name: {**arm, "drop": []} for name, arm in arms.items()}
    with pytest.raises(PlanError):
        plan(spec(arms=without_search))


def test_the_unspoilt_arms_are_not_refused() -> None:
    found = plan(spec(arms={name: {**arm, "drop": []} for name, arm in ARMS.items()}))
    assert len(found.arms) == 5
    assert not any(check.notes for check in found.proofs)


@pytest.mark.parametrize("seed", range(2))
def test_what_only_words_speak_against_is_noted_and_planned(
    seed: int,
) -> None:
    arms = swapped(random.Random(seed), {name: dict(arm) for name, arm in ARMS.items()})
    found = plan(spec(arms={name: {**arm, "drop": []} for name, arm in arms.items()}))
    assert any(check.notes for check in found.proofs)


def test_swapped_names_are_noted() -> None:
    (note,) = plan(one_arm({"model.halt.transition": False}, name="minus-gate")).proofs[1].notes
    assert "removes gate, but the arm changes model.halt.transition" in note


def test_a_field_that_only_shows_away_from_the_initial_weights_counts() -> None:
    """With two layers neither threshold is reached at the initial probability of about a half."""
    found = plan(one_arm({"model.halt.threshold": 0.99}, baseline=baseline(max_layers=2))).proofs[1]
    assert found.evidence


def test_an_arm_that_changes_more_than_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose settings rewrite each other behind the spec's back."""
    from trainables.models import universal

    class Sly(universal.Config):
        def model_dump(self, **options: Any) -> dict[str, Any]:
            return super().model_dump(**options) | ({} if self.gate else {"width": 8})

    monkeypatch.setattr(universal, "Config", Sly)
    with pytest.raises(PlanError, match=r"arms\.arm\.set\.model\.gate.*model\.width goes from 16 to 8"):
        planner.plan(one_arm({"model.gate": False}))


def test_a_loss_that_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "objective", lambda output, config: output.loss.sum() * torch.inf)
    with pytest.raises(PlanError, match="must begin with a finite loss and gradient, got loss=inf"):
        planner.plan(spec())


def test_flash_in_32_bits_is_refused() -> None:
    with pytest.raises(PlanError, match=r"model\.attention: must not be flash with train\.precision fp32"):
        plan(spec(baseline=baseline(attention="flash")))


def test_shared_weights_and_dropout_are_paired() -> None:
    """What makes a difference of one bit mean something: the same settings twice agree exactly."""
    faults = Faults(spec())
    (one,) = resolve(spec(), faults)
    first, second = Probe(), Probe()
    for asked in (LEARNS, LEARNS_MOVED, *READS):
        assert first.measure(one.system, asked) == second.measure(one.system, asked)
    assert first.measure(one.system, READS[0]) != first.measure(one.system, READS[1])


def test_a_dimension_without_effect_is_refused() -> None:
    arms = {**ARMS, "no-halt": {**ARMS["no-halt"], "drop": ["model.halt.threshold"]}}
    message = r"arms\.no-halt: searches train\.ponder_weight, which changes nothing in no-halt: add"
    with pytest.raises(PlanError, match=message):
        plan(full(arms=arms))


DROPOUT = {"also": {"model.dropout": {"float": [0.0, 0.3]}}, "trials_per_arm": 2}


def test_a_dimension_that_the_code_ignores_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arm's own value lies between the ends, and all three are built alike."""
    build, asked = probe.build_model, set()

    def deaf(config: Any, *rest: Any) -> Any:
        asked.add(config.dropout)
        return build(config.model_copy(update={"dropout": 0.1}), *rest)

    monkeypatch.setattr(probe, "build_model", deaf)
    with pytest.raises(PlanError, match=r"varies model\.dropout, which changes nothing in baseline"):
        planner.plan(full(arms={}, posthoc={}, search={**SEARCH, "spaces": [], **DROPOUT}))
    assert asked == {0.0, 0.1, 0.3}
