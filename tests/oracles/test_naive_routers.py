"""The Neural Data Router and its arms equal a naive implementation: values and all gradients."""

from typing import Any

import pytest
from torch import nn

from tests.oracles import naive_ndr
from tests.oracles.test_naive_encoders import (
    LENGTHS,
    WIDTH,
    assert_equal_outputs,
    gradients,
    inputs,
    naive_objective,
    perturb_parameters,
)
from trainables import catalog
from trainables.assembly import initialise, model_config

ARMS: dict[str, dict[str, Any]] = {
    "ndr": {},
    "ndr.first_published": {"normalise_rows": False, "pooling": "start"},
    "ndr.no_gate": {"gate": False},
    "ndr.no_geometric": {"geometric": False},
    "ndr.no_geometric_as_released": {"geometric": False, "proposal": "tanh", "gate_dropout": 0.0},
    "ndr.tanh": {"proposal": "tanh"},
    "ndr.no_geometric_no_gate": {"geometric": False, "gate": False},
    "ndr.no_direction": {"direction": False},
    "ndr.test_depth": {"test_layers": 5},
}
SIZES = {"width": WIDTH, "heads": 2, "head_width": 3, "feedforward_width": 7, "layers": 2, "test_layers": 3}


def build(arm: str) -> tuple[nn.Module, dict[str, Any]]:
    config = model_config({"name": "ndr"} | SIZES | ARMS[arm])
    encoder = catalog.load("models", "ndr").Encoder(config).double()
    initialise(encoder, seed=5)
    # Larger weights make matches near and far, and a bias opens the gates.
    scaled = dict.fromkeys(("query.weight", "direction.weight", "relative.weight"), 3.0)
    perturb_parameters(encoder, scaled, noisy=("norm.weight", "bias", "bias.weight", "scale.weight"))
    if config.gate:
        encoder.layer.gate.outer.bias.data.add_(2.5)
    return encoder, config.model_dump()


@pytest.mark.parametrize("arm", ARMS)
def test_router_equals_the_naive_implementation(arm: str) -> None:
    encoder, config = build(arm)
    x, mask = inputs()
    parameters = dict(encoder.named_parameters())
    rows = zip(x, LENGTHS, strict=True)
    naive_outputs = [naive_ndr.run(parameters, config, row[:length]) for row, length in rows]
    expected = gradients(encoder, {"x": x}, naive_objective(naive_outputs))
    assert_equal_outputs(encoder, {"x": x}, encoder(x, mask), naive_outputs, expected)
