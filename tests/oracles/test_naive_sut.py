"""The Sparse Universal Transformer, encoder and decoder, against its naive twin: values, costs, gradients."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import naive_sut
from tests.oracles.test_naive_twins import LENGTHS, WIDTH, gradients, inputs, objective, stream
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
    "sut.dense_attention": {"attention": ATTENTION | {"experts": 1, "active": 1}},
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
    "sut.causal_no_halting": {"causal": True, "halt": None, "max_layers": 2},
}
SAMPLED = "sut.sampled"
"""Runs in training, where experts are drawn, and without dropout."""
STILL = {"dropout": 0.0, "attention_dropout": 0.0, "gating_dropout": 0.0}
STEP = 4
MODES = ("compact", "batch", "none")
SOURCES = [3, 1, 4]
"""Lengths of what a decoder reads, for each of the sequences it writes."""


def build(arm: str, part: str, **more: Any) -> tuple[nn.Module, dict[str, Any]]:
    config = model_config(SIZES | ARMS[arm] | (STILL if arm == SAMPLED else {}) | more)
    module = getattr(catalog.load("models", "sut"), part)(config).double()
    initialise(module, seed=5)
    for name, parameter in module.named_parameters():
        # Beyond initial values: norms and biases count, offsets are told apart, halting differs by token.
        noise = torch.randn(parameter.shape, generator=stream(len(name)), dtype=torch.float64)
        if name.endswith(("norm.weight", "norm.bias", "offsets.weight")):
            parameter.data.add_(0.3 * noise)
        if name.endswith("halt.outer.weight"):
            parameter.data.add_(noise)
        if name.endswith("halt.inner.weight") or "router" in name:
            parameter.data.mul_(2.0)
    module.train(arm == SAMPLED)
    return module, config.model_dump()


def numbers(row: int, name: str, layer: int, token: int) -> list[float]:
    """What experts are drawn by, read from the same stream."""
    noise, place = KeyedNoise(), hash_numbers(torch.tensor([row * ROW_STRIDE + token]))
    noise.begin(0, "dropout", STEP, 0, f"{name}.router.noise")
    noise.skip_to(layer - 1)
    return noise(place, 9)[0].tolist()


def memory() -> tuple[Tensor, Tensor]:
    states = torch.randn(len(SOURCES), 5, WIDTH, generator=stream(7), dtype=torch.float64)
    return states.requires_grad_(), torch.arange(5) < torch.tensor(SOURCES)[:, None]


def run(module: nn.Module, part: str) -> tuple[Encoded, Tensor]:
    """Of the whole batch, with padding; and the input whose gradient is compared."""
    x, mask = inputs()
    set_dropout_context(module, 0, STEP)
    if part == "Encoder":
        return module(x, mask), x
    states, states_mask = memory()
    return module(x.detach(), mask, states, states_mask), states


def twins(module: nn.Module, part: str, config: dict[str, Any]) -> tuple[list[naive_sut.Naive], Tensor]:
    p, (x, _) = dict(module.named_parameters()), inputs()
    rows = [row[:length] for row, length in zip(x, LENGTHS, strict=True)]
    noises = [partial(numbers, number) if module.training else None for number in range(len(rows))]
    if part == "Encoder":
        return [naive_sut.encode(p, config, *each) for each in zip(rows, noises, strict=True)], x
    states, _ = memory()
    sources = [row[:length] for row, length in zip(states, SOURCES, strict=True)]
    each = zip(rows, sources, noises, strict=True)
    return [naive_sut.decode(p, config, row.detach(), *more) for row, *more in each], states


def total(pooled: Tensor, states: list[Tensor], ponder: Tensor, auxiliary: Tensor | None) -> Tensor:
    value = objective(pooled, states, ponder)
    return value if auxiliary is None else value + 1.7 * auxiliary


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
def test_sparse_model_equals_its_naive_twin(arm: str, part: str) -> None:
    module, config = build(arm, part)
    theirs, source = twins(module, part, config)
    auxiliary = naive_sut.balance([c for twin in theirs for c in twin.choices], config["balance"])
    value = total(
        torch.stack([twin.pooled for twin in theirs]),
        [torch.stack(twin.states) for twin in theirs],
        torch.stack([twin.ponder for twin in theirs]),
        auxiliary,
    )
    expected = gradients(module, source, value)
    halts = config["halt"] is not None
    if halts:
        assert min(twin.depth for twin in theirs) < config["max_layers"]
        assert len({twin.depth for twin in theirs}) > 1, "depths that are all the same would prove little"
    for mode in MODES if halts else MODES[:1]:
        check(build(arm, part, early_exit=mode)[0], part, theirs, auxiliary, expected)


def check(
    module: nn.Module,
    part: str,
    theirs: list[naive_sut.Naive],
    auxiliary: Tensor | None,
    expected: dict[str, Tensor],
) -> None:
    ours, source = run(module, part)
    rows = [states[: len(twin.states)] for states, twin in zip(ours.states, theirs, strict=True)]
    for row, twin in zip(rows, theirs, strict=True):
        torch.testing.assert_close(row, torch.stack(twin.states))
    torch.testing.assert_close(ours.pooled, torch.stack([twin.pooled for twin in theirs]))
    torch.testing.assert_close(ours.ponder, torch.stack([twin.ponder for twin in theirs]))
    assert ours.depth.tolist() == pytest.approx([twin.depth for twin in theirs])
    if auxiliary is None:
        assert ours.auxiliary is None
    else:
        assert ours.auxiliary is not None
        torch.testing.assert_close(ours.auxiliary, auxiliary.expand(len(theirs)))
    mean = None if ours.auxiliary is None else ours.auxiliary.mean()
    mine = gradients(module, source, total(ours.pooled, rows, ours.ponder, mean))
    assert mine.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(mine[name], grad, msg=lambda text, name=name: f"{name}: {text}")
