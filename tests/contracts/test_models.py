"""Contract of the built-in models: each file in `trainables/models`, each model of each experiment."""

from typing import Any

import pytest

from tests.support.specs.box import MODELS, all_arms, build_arm
from trainables.testing.cases import batch, enliven
from trainables.testing.causality import HALTING_FACTOR, inputs

globals().update({f"Test{name.capitalize()}": contract for name, contract in MODELS.items()})

MIN_SHARE = 0.6
"""Share of a model's arms that must halt at different depths, so that contracts test halting."""


def halting(argument: str) -> dict[str, list[dict[str, Any]]]:
    """Return the halting arms of each model."""
    arms_by_model: dict[str, list[dict[str, Any]]] = {}
    for raw in all_arms(argument).values():
        if raw.get("halt") is not None:
            arms_by_model.setdefault(raw["name"], []).append(raw)
    return arms_by_model


def test_models_of_all_kinds_exist() -> None:
    assert MODELS.keys() >= {"transformer", "universal", "sut", "looped"}
    assert {raw["name"] for raw in all_arms("writing").values()} >= {"transformer", "universal", "sut"}


@pytest.mark.parametrize("name", halting("exiting"))
def test_inputs_halt_at_different_depths(name: str) -> None:
    are_different = [
        build_arm(raw).eval()(batch([5, 1, 9, 3, 8, 2])).encoded.depth.unique().numel() > 1
        for raw in halting("exiting")[name]
    ]
    assert sum(are_different) >= MIN_SHARE * len(are_different)


@pytest.mark.parametrize("name", halting("causal"))
def test_positions_halt_at_different_depths(name: str) -> None:
    are_different = []
    for raw in halting("causal")[name]:
        model = build_arm(raw).eval()
        enliven(model, HALTING_FACTOR)
        x, mask = inputs(model)
        depths = [
            model.encoder(x[:, :length], mask[:, :length]).depth.sum().item() / length for length in (1, 4, 9)
        ]
        are_different.append(len({round(depth, 6) for depth in depths}) > 1)
    assert sum(are_different) >= MIN_SHARE * len(are_different)
