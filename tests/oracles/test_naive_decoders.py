"""Decoders against their naive twins: values and all gradients, those of the encoded input included."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import naive_decoder
from tests.oracles.test_naive_twins import (
    ODD_SIZES,
    PROPOSALS,
    TOKEN_UT,
    WIDTH,
    beyond_initial,
    objective,
    resolved,
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


def build(arm: str, **more: Any) -> tuple[nn.Module, dict[str, Any]]:
    raw = {"name": "universal"} | ODD_SIZES | ARMS[arm] | more
    if raw["name"] == "universal":
        raw = {"max_layers": 7} | raw
    config = model_config(raw)
    decoder = catalog.load("models", raw["name"]).Decoder(config).double()
    initialise(decoder, seed=5)
    # Tokens halt at different depths.
    return beyond_initial(decoder, {"halt.outer.weight": 6.0}), config.model_dump() | resolved(config)


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    y, memory = (
        torch.randn(3, PADDED, WIDTH, generator=stream(seed), dtype=torch.float64).requires_grad_()
        for seed in (1, 2)
    )
    y_mask, memory_mask = (torch.arange(PADDED) < torch.tensor(each)[:, None] for each in (ANSWERS, INPUTS))
    return y, y_mask, memory, memory_mask


def gradients(decoder: nn.Module, y: Tensor, memory: Tensor, value: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*decoder.named_parameters(), strict=True)
    grads = torch.autograd.grad(value, [y, memory, *parameters], allow_unused=True)
    named = zip(["y", "memory", *names], grads, strict=True)
    return {name: grad for name, grad in named if grad is not None}


@pytest.mark.parametrize("arm", ARMS)
def test_decoder_equals_its_naive_twin(arm: str) -> None:
    decoder, config = build(arm)
    y, _, memory, _ = inputs()
    parameters = dict(decoder.named_parameters())
    theirs = [
        naive_decoder.run(parameters, config, row[:length], seen[:source])
        for row, length, seen, source in zip(y, ANSWERS, memory, INPUTS, strict=True)
    ]
    pooled, ponder = (torch.stack([getattr(twin, name) for twin in theirs]) for name in ("pooled", "ponder"))
    states = [torch.stack(list(twin.states)) for twin in theirs]
    expected = gradients(decoder, y, memory, objective(pooled, states, ponder))
    halts = config.get("halt") is not None
    if halts:
        assert len({twin.depth for twin in theirs}) > 1, "answers that all ran to the bound prove little"
    modes = ("batch", "none") if config.get("early_exit") == "batch" else ("compact", "batch", "none")
    for more in [{"early_exit": mode} for mode in modes] if halts else [{}]:
        fast = build(arm, **more)[0]
        y, y_mask, memory, memory_mask = inputs()
        ours = fast(y, y_mask, memory, memory_mask)
        rows = [each[:length] for each, length in zip(ours.states, ANSWERS, strict=True)]
        for row, twin in zip(rows, states, strict=True):
            torch.testing.assert_close(row, twin)
        torch.testing.assert_close(ours.pooled, pooled)
        torch.testing.assert_close(ours.ponder, ponder)
        assert ours.depth.tolist() == pytest.approx([twin.depth for twin in theirs])
        mine = gradients(fast, y, memory, objective(ours.pooled, rows, ours.ponder))
        assert mine.keys() == expected.keys()
        for name, grad in expected.items():
            torch.testing.assert_close(mine[name], grad, msg=lambda text, name=name: f"{name}: {text}")
