"""Models are built with reproducible initial weights, and only for tasks that they fit."""

import dataclasses

import pytest
import torch
from torch import nn

from trainables import catalog
from trainables.assembly import build_model, initialise
from trainables.layers.experts import ExpertLinear
from trainables.layers.linear import LayerNorm, Linear, Vector, XavierLinear
from trainables.types import TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)


def test_initial_weight_depends_only_on_its_name() -> None:
    single = nn.ModuleDict({"b": Linear(4, 3)})
    pair = nn.ModuleDict({"a": XavierLinear(7, 7), "b": Linear(4, 3)})
    initialise(single, 5)
    initialise(pair, 5)
    assert torch.equal(single["b"].weight, pair["b"].weight)
    renamed = nn.ModuleDict({"c": Linear(4, 3)})
    initialise(renamed, 5)
    assert not torch.equal(single["b"].weight, renamed["c"].weight)


def test_initial_weights_have_the_expected_distributions() -> None:
    """Bounds are exact; means and deviations are within six standard errors for this fixed seed."""
    parts = nn.ModuleDict(
        {
            "plain": Linear(200, 300),
            "xavier": XavierLinear(200, 300, gain=0.5**0.5),
            "even": XavierLinear(200, 300, bias_mean=None),
            "experts": ExpertLinear(2, 200, 300, bias=True),
            "vector": Vector(400, 100, std=1.0),
            "norm": LayerNorm(9),
        }
    )
    initialise(parts, 0)
    bounds = {
        "plain": 200**-0.5,
        "xavier": 0.5**0.5 * (6 / 500) ** 0.5,
        "even": (6 / 500) ** 0.5,
        "experts": 1 / 200,
    }
    for name, bound in bounds.items():
        weight = parts[name].weight
        assert weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    for name, bound in (("plain", 200**-0.5), ("even", 200**-0.5), ("experts", 300**-0.5)):
        assert 0.95 * bound <= parts[name].bias.abs().max() <= bound
    assert parts["xavier"].bias.std().item() == pytest.approx(1e-6, rel=0.3)
    assert parts["vector"].weight.std().item() == pytest.approx(1.0, rel=0.02)
    assert parts["norm"].weight.tolist() == [1.0] * 9
    assert parts["norm"].bias.tolist() == [0.0] * 9


CAUSAL_SHAPE = dataclasses.replace(SHAPE, causal=True)


ALWAYS_CAUSAL = ["looped"]


@pytest.mark.parametrize("name", sorted({*catalog.names("models")} - {*ALWAYS_CAUSAL}))
def test_task_with_answers_in_later_tokens_needs_a_causal_model(name: str) -> None:
    remedy = r"model\.causal .*true" if "causal" in fields(name) else "looped.*universal"
    with pytest.raises(ValueError, match=f"{name} .*{remedy}"):
        build_model({"name": name}, CAUSAL_SHAPE, seed=0, device="meta")
    if "causal" in fields(name):
        build_model({"name": name, "causal": True}, CAUSAL_SHAPE, seed=0, device="meta")


@pytest.mark.parametrize("name", ALWAYS_CAUSAL)
def test_always_causal_model_has_no_causal_field(name: str) -> None:
    assert "causal" not in fields(name)
    build_model({"name": name, "loops": 2}, CAUSAL_SHAPE, seed=0, device="meta")


def fields(name: str) -> set[str]:
    return set(catalog.load("models", name).Config.model_fields)


SEQUENCE_SHAPE = TaskShape("sequence", 18, 10, pad_id=16, length_max=100, end_id=9, answer_length_max=5)


@pytest.mark.parametrize("name", catalog.names("models"))
def test_sequence_task_needs_a_model_with_a_decoder(name: str) -> None:
    if hasattr(catalog.load("models", name), "Decoder"):
        build_model({"name": name}, SEQUENCE_SHAPE, seed=0, device="meta")
        return
    with pytest.raises(ValueError, match=rf"{name} .*transformer, universal"):
        build_model({"name": name}, SEQUENCE_SHAPE, seed=0, device="meta")


def test_tied_output_needs_a_sequence_task() -> None:
    raw = {"name": "transformer", "tied_output": True}
    with pytest.raises(ValueError, match=r"transformer .*tied_output=True .*'classify'"):
        build_model(raw, SHAPE, seed=0, device="meta")
    build_model(raw, SEQUENCE_SHAPE, seed=0, device="meta")
