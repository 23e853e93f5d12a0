"""Decoders equal a naive implementation: values and all gradients, also those of the encoded input."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import naive_decoder
from tests.oracles.test_naive_encoders import (
    ODD_SIZES,
    PROPOSALS,
    TOKEN_UT,
    WIDTH,
    objective,
    perturb_parameters,
    resolved_kv,
    stream,
)
from trainables import catalog
from trainables.assembly import initialise, model_config

ARMS: dict[str, dict[str, Any]] = {
    "transformer": {"name": "transformer", "layers": 3},
    "transformer.causal": {"name": "transformer", "layers": 2, "causal": True},
    "ut": {"gate": False, "halt": TOKEN_UT},
    "ut.prefix": {"gate": False, "halt": TOKEN_UT | {"rule": "prefix"}},
    "ut.origin_1": {"gate": False, "halt": TOKEN_UT | {"origin": 1}},
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


def gradients(decoder: nn.Module, y: Tensor, memory: Tensor, value: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*decoder.named_parameters(), strict=True)
    grads = torch.autograd.grad(value, [y, memory, *parameters], allow_unused=True)
    named_grads = zip(["y", "memory", *names], grads, strict=True)
    return {name: grad for name, grad in named_grads if grad is not None}


@pytest.mark.parametrize("arm", ARMS)
def test_decoder_equals_the_naive_implementation(arm: str) -> None:
    decoder, config = build(arm)
    y, _, memory, _ = inputs()
    parameters = dict(decoder.named_parameters())
    naive_outputs = [
        naive_decoder.run(parameters, config, row[:length], encoded[:source])
        for row, length, encoded, source in zip(y, ANSWERS, memory, INPUTS, strict=True)
    ]
    pooled, ponder = (
        torch.stack([getattr(naive_output, name) for naive_output in naive_outputs])
        for name in ("pooled", "ponder")
    )
    states = [torch.stack(list(naive_output.states)) for naive_output in naive_outputs]
    expected = gradients(decoder, y, memory, objective(pooled, states, ponder))
    halts = config.get("halt") is not None
    if halts:
        assert len({naive_output.depth for naive_output in naive_outputs}) > 1, (
            "the test needs answers of different depths"
        )
    modes = ("batch", "none") if config.get("early_exit") == "batch" else ("compact", "batch", "none")
    for options in [{"early_exit": mode} for mode in modes] if halts else [{}]:
        decoder_ = build(arm, **options)[0]
        y, y_mask, memory, memory_mask = inputs()
        output = decoder_(y, y_mask, memory, memory_mask)
        rows = [row_states[:length] for row_states, length in zip(output.states, ANSWERS, strict=True)]
        for row, naive_output in zip(rows, states, strict=True):
            torch.testing.assert_close(row, naive_output)
        torch.testing.assert_close(output.pooled, pooled)
        torch.testing.assert_close(output.ponder, ponder)
        assert output.depth.tolist() == pytest.approx([naive_output.depth for naive_output in naive_outputs])
        grads = gradients(decoder_, y, memory, objective(output.pooled, rows, output.ponder))
        assert grads.keys() == expected.keys()
        for name, grad in expected.items():
            torch.testing.assert_close(grads[name], grad, msg=lambda text, name=name: f"{name}: {text}")
