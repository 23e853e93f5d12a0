"""Decoders equal a naive implementation: values and all gradients, also those of the encoded input."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import naive_decoder
from tests.oracles.test_naive_encoders import (
    EXITS,
    ODD_SIZES,
    PROPOSALS,
    TOKEN_UT,
    WIDTH,
    assert_equal_outputs,
    gradients,
    naive_objective,
    perturb_parameters,
    resolved_kv,
    stream,
)
from trainables import catalog
from trainables.assembly import initialise, model_config

ARMS: dict[str, dict[str, Any]] = {
    "transformer": {"name": "transformer", "layers": 3},
    "ut": {"gate": False, "halt": TOKEN_UT},
    "ut.prefix": {"gate": False, "halt": TOKEN_UT | {"rule": "prefix"}},
    "ut.no_halt": {"gate": False, "halt": None, "max_layers": 3},
    "gut": {"halt": {"threshold": 0.6}},
    "gut.no_transition": {"halt": {"transition": False}},
    "gut.halted_proposals": {"halt": PROPOSALS, "early_exit": "batch"},
    "gut.prefix": {"halt": {"rule": "prefix", "threshold": 0.6}},
    "gut.kv_from_s": {"kv": "mixture", "halt": {"threshold": 0.6}},
    "gut.no_global_halt": {"halt": {"unit": "token"}},
    "gut.no_halt": {"halt": None, "max_layers": 3},
}
ANSWERS, INPUTS, PADDED = (5, 1, 3), (2, 6, 4), 7


def build(arm: str, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    raw = {"name": "universal"} | ODD_SIZES | ARMS[arm] | options
    if raw["name"] == "universal":
        raw = {"max_layers": 7} | raw
    config = model_config(raw)
    decoder = catalog.load("models", raw["name"]).Decoder(config).double()
    initialise(decoder, seed=5)
    # Larger weights make tokens halt at different depths.
    return perturb_parameters(decoder, {"halt.outer.weight": 6.0}), config.model_dump() | resolved_kv(config)


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    y, memory = (
        torch.randn(3, PADDED, WIDTH, generator=stream(seed), dtype=torch.float64).requires_grad_()
        for seed in (1, 2)
    )
    y_mask, memory_mask = (
        torch.arange(PADDED) < torch.tensor(lengths)[:, None] for lengths in (ANSWERS, INPUTS)
    )
    return y, y_mask, memory, memory_mask


@pytest.mark.parametrize("arm", ARMS)
def test_decoder_equals_the_naive_implementation(arm: str) -> None:
    decoder, config = build(arm)
    y, y_mask, memory, memory_mask = inputs()
    parameters = dict(decoder.named_parameters())
    naive_outputs = [
        naive_decoder.run(parameters, config, row[:length], encoded[:source])
        for row, length, encoded, source in zip(y, ANSWERS, memory, INPUTS, strict=True)
    ]
    module_inputs = {"y": y, "memory": memory}
    expected = gradients(decoder, module_inputs, naive_objective(naive_outputs))
    options: list[dict[str, str]] = [{}]
    if config.get("halt") is not None:
        assert len({output.depth for output in naive_outputs}) > 1, "the test needs different depths"
        options = [{"early_exit": mode} for mode in EXITS[config["early_exit"] == "batch" :]]
    for option in options:
        decoder, _ = build(arm, **option)
        output = decoder(y, y_mask, memory, memory_mask)
        assert_equal_outputs(decoder, module_inputs, output, naive_outputs, expected)
