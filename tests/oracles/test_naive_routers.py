"""The Neural Data Router with its arms, against its naive twin: values and all gradients."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.oracles import naive_ndr
from tests.oracles.test_naive_twins import LENGTHS, WIDTH, check, gradients, inputs, objective, stream
from trainables import catalog
from trainables.assembly import initialise, model_config

ARMS: dict[str, dict[str, Any]] = {
    "ndr": {},
    "ndr.first_published": {"normalise_rows": False, "pooling": "start"},
    "ndr.no_gate": {"gate": False},
    "ndr.no_geometric": {"geometric": False},
    "ndr.no_geometric_no_gate": {"geometric": False, "gate": False},
    "ndr.no_direction": {"direction": False},
    "ndr.test_depth": {"test_layers": 5},
}
SIZES = {"width": WIDTH, "heads": 2, "head_width": 3, "feedforward_width": 7, "layers": 2, "test_layers": 3}


def build(arm: str) -> tuple[nn.Module, dict[str, Any]]:
    config = model_config({"name": "ndr"} | SIZES | ARMS[arm])
    encoder = catalog.load("models", "ndr").Encoder(config).double()
    initialise(encoder, seed=5)
    for name, parameter in encoder.named_parameters():
        # Beyond initial values: every parameter counts, gates are open, matches are near and far.
        if name.endswith(("norm.weight", "bias", "bias.weight", "scale.weight")):
            parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=stream(len(name))))
        if name.endswith("gate.outer.bias"):
            parameter.data.add_(2.5)
        if name.endswith(("query.weight", "direction.weight", "relative.weight")):
            parameter.data.mul_(3.0)
    return encoder.eval(), config.model_dump()


@pytest.mark.parametrize("arm", ARMS)
def test_router_equals_its_naive_twin(arm: str) -> None:
    encoder, config = build(arm)
    x, _ = inputs()
    parameters = dict(encoder.named_parameters())
    rows = zip(x, LENGTHS, strict=True)
    theirs = [naive_ndr.run(parameters, config, row[:length]) for row, length in rows]
    value = objective(
        torch.stack([twin.pooled for twin in theirs]),
        [torch.stack(twin.states) for twin in theirs],
        torch.stack([twin.ponder for twin in theirs]),
    )
    check(encoder, theirs, gradients(encoder, x, value))
