"""The Sparse Universal Transformer equals a naive implementation: values, costs, gradients of both parts."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import naive_sut
from tests.oracles.test_naive_encoders import (
    AUXILIARY_WEIGHT,
    EXITS,
    LENGTHS,
    WIDTH,
    assert_equal_outputs,
    gradients,
    inputs,
    naive_objective,
    stream,
)
from trainables import catalog
from trainables.assembly import initialise, model_config
from trainables.layers.dropout import KeyedNoise, set_dropout_context
from trainables.layers.mask_draws import hash_numbers
from trainables.layers.tokens import ROW_STRIDE
from trainables.types import Encoded

ATTENTION = {"experts": 3, "active": 2, "heads": 2, "head_width": 3, "window": 2}
FEEDFORWARD = {"experts": 5, "active": 2, "width": 7}
SIZES: dict[str, Any] = {
    "name": "sut",
    "width": WIDTH,
    "max_layers": 4,
    "attention": ATTENTION,
    "feedforward": FEEDFORWARD,
}
ARMS: dict[str, dict[str, Any]] = {
    "sut": {},
    "sut.no_mim": {"balance": "switch"},
    "sut.no_balance": {"balance": "none"},
    "sut.no_momha": {"attention": ATTENTION | {"experts": 6, "active": 3, "heads": 1}},
    "sut.no_halting": {"halt": None, "max_layers": 3},
    "sut.dense": {
        "attention": ATTENTION | {"experts": 1, "active": 1},
        "feedforward": {"experts": 1, "active": 1, "width": 9},
    },
    "sut.all_experts": {
        "attention": ATTENTION | {"active": 3},
        "feedforward": {"experts": 2, "active": 2, "width": 3},
    },
    "sut.low_threshold": {"halt": {"threshold": 0.5}},
    "sut.switch_low_threshold": {"halt": {"threshold": 0.5}, "balance": "switch"},
    "sut.pre_norm": {"norm": "pre"},
    "sut.relative_positions_alone": {"absolute_positions": False, "pooling": "mean"},
    "sut.fairseq_positions": {"position_layout": "halves"},
    "sut.no_window": {"attention": ATTENTION | {"window": 0}, "pooling": "start"},
    "sut.sampled": {
        "attention": ATTENTION | {"sampled": 1},
        "feedforward": FEEDFORWARD | {"active": 3, "sampled": 2},
    },
    "sut.causal": {"causal": True},
}
SAMPLED = "sut.sampled"
"""This arm runs in training, where experts are drawn, and without dropout."""
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "gating_dropout": 0.0}
STEP = 4
SOURCES = [3, 1, 4]
"""Lengths of the source sequences that the decoder reads."""


def build(arm: str, part: str, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    config = model_config(SIZES | ARMS[arm] | (NO_DROPOUT if arm == SAMPLED else {}) | options)
    module = getattr(catalog.load("models", "sut"), part)(config).double()
    initialise(module, seed=5)
    for name, parameter in module.named_parameters():
        # Changed weights make norms, biases and offsets count, and tokens halt at different depths.
        noise = torch.randn(parameter.shape, generator=stream(len(name)), dtype=torch.float64)
        if name.endswith(("norm.weight", "norm.bias", "offsets.weight")):
            parameter.data.add_(0.3 * noise)
        if name.endswith("halt.outer.weight"):
            parameter.data.add_(noise)
        if name.endswith("halt.inner.weight") or "router" in name:
            parameter.data.mul_(2.0)
    module.train(arm == SAMPLED)
    return module, config.model_dump()


def routing_noise(row: int, name: str, layer: int, token: int) -> list[float]:
    """Return the random numbers that choose experts, from the model's own stream."""
    noise, token_keys = KeyedNoise(), hash_numbers(torch.tensor([row * ROW_STRIDE + token]))
    noise.begin(0, "dropout", STEP, 0, f"{name}.router.noise")
    noise.skip_to(layer - 1)
    return noise(token_keys, 9)[0].tolist()


def memory() -> tuple[Tensor, Tensor]:
    states = torch.randn(len(SOURCES), 5, WIDTH, generator=stream(7), dtype=torch.float64)
    return states.requires_grad_(), torch.arange(5) < torch.tensor(SOURCES)[:, None]


def naive_run(
    module: nn.Module, part: str, config: dict[str, Any]
) -> tuple[list[naive_sut.NaiveOutput], Tensor]:
    p, (x, _) = dict(module.named_parameters()), inputs()
    rows = [row[:length] for row, length in zip(x, LENGTHS, strict=True)]
    noises = [partial(routing_noise, number) if module.training else None for number in range(len(rows))]
    if part == "Encoder":
        return [naive_sut.encode(p, config, *arguments) for arguments in zip(rows, noises, strict=True)], x
    states, _ = memory()
    sources = [row[:length] for row, length in zip(states, SOURCES, strict=True)]
    arguments = zip(rows, sources, noises, strict=True)
    return [naive_sut.decode(p, config, row.detach(), *rest) for row, *rest in arguments], states


CASES = [(arm, "Encoder") for arm in ARMS] + [
    (arm, "Decoder")
    for arm in (
        "sut",
        "sut.no_momha",
        "sut.no_halting",
        "sut.dense",
        "sut.switch_low_threshold",
        "sut.pre_norm",
        "sut.fairseq_positions",
        SAMPLED,
    )
]


@pytest.mark.parametrize(("arm", "part"), CASES)
def test_sparse_model_equals_the_naive_implementation(arm: str, part: str) -> None:
    module, config = build(arm, part)
    naive_outputs, source = naive_run(module, part, config)
    auxiliary = naive_sut.balance([c for output in naive_outputs for c in output.choices], config["balance"])
    value = naive_objective(naive_outputs)
    if auxiliary is not None:
        value = value + AUXILIARY_WEIGHT * auxiliary
    expected = gradients(module, {"source": source}, value)
    halts = config["halt"] is not None
    if halts:
        depths = {output.depth for output in naive_outputs}
        assert min(depths) < config["max_layers"]
        assert len(depths) > 1, "the test needs sequences of different depths"
    for mode in EXITS if halts else EXITS[:1]:
        module, _ = build(arm, part, early_exit=mode)
        output, source = run(module, part)
        assert (output.auxiliary is None) == (auxiliary is None)
        assert_equal_outputs(module, {"source": source}, output, naive_outputs, expected, auxiliary)


def run(module: nn.Module, part: str) -> tuple[Encoded, Tensor]:
    """Run the module on the batch with padding; return the output and the input of the compared gradient."""
    x, mask = inputs()
    set_dropout_context(module, 0, STEP)
    if part == "Encoder":
        return module(x, mask), x
    states, states_mask = memory()
    return module(x.detach(), mask, states, states_mask), states
