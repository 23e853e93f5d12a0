"""The continuous recursive network with its published ablations, against its naive twin."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import naive_crvnn
from tests.oracles.naive_universal import Naive
from tests.oracles.test_naive_twins import WIDTH, beyond_initial, gradients, objective, stream
from trainables import catalog
from trainables.assembly import initialise, model_config

FIRST = {"transition_features": 3, "shared_norm": True, "halt": {"threshold": 0.1, "penalty": True}}
LATENT: dict[str, dict[str, Any]] = {
    "crvnn": {},
    "crvnn.first_published": FIRST,
    "crvnn.product_retriever": {"retriever": "product"},
    "crvnn.no_modulation": FIRST | {"modulated": False},
    "crvnn.no_transition": FIRST | {"transition_features": None},
    "crvnn.no_halt_penalty": FIRST | {"halt": {"threshold": 0.4}},
    "crvnn.relu": {"activation": "relu"},
    "crvnn.lstm_cell": {"cell": "lstm", "cell_width": None},
    "crvnn.lstm_tanh_gelu": {"cell": "lstm", "cell_width": None, "tanh_gelu": True},
    "crvnn.tanh_gelu": {"tanh_gelu": True},
    "crvnn.no_halt": {"halt": None},
    "crvnn.window": {"window": 3},
    "crvnn.no_window": {"window": 1},
}
GIVEN: dict[str, dict[str, Any]] = {
    "crvnn.left_to_right": {"structure": "left-to-right"},
    "crvnn.left_to_right_tanh_gelu": {"structure": "left-to-right", "shared_norm": True, "tanh_gelu": True},
    "crvnn.balanced": {"structure": "balanced"},
    "crvnn.left_to_right_lstm": {"structure": "left-to-right", "cell": "lstm", "cell_width": None},
    "crvnn.balanced_lstm": {"structure": "balanced", "cell": "lstm", "cell_width": None},
}
LENGTHS, PADDED = (6, 1, 2, 7, 5), 9
SMALL = {"name": "crvnn", "width": WIDTH, "cell_width": 7, "halt": {"threshold": 0.4}}


def build(change: dict[str, Any], **more: Any) -> tuple[nn.Module, dict[str, Any]]:
    config = model_config(SMALL | change | more)
    encoder = catalog.load("models", "crvnn").Encoder(config).double()
    initialise(encoder, seed=5)
    # Sequences finish at different depths.
    beyond_initial(encoder, {"scorer.outer.weight": 4.0}, noisy=("norm.weight", "bias", "start.weight"))
    if encoder.scorer is not None:
        encoder.scorer.outer.bias.data.add_(1.0)
    return encoder, config.model_dump()


def inputs() -> tuple[Tensor, Tensor]:
    x = torch.randn(len(LENGTHS), PADDED, WIDTH, generator=stream(1), dtype=torch.float64)
    return x.requires_grad_(), torch.arange(PADDED) < torch.tensor(LENGTHS)[:, None]


def naive(encoder: nn.Module, config: dict[str, Any], x: Tensor) -> list[Naive]:
    parameters = dict(encoder.named_parameters())
    rows = zip(x, LENGTHS, strict=True)
    return [naive_crvnn.run(parameters, config, row[:length]) for row, length in rows]


def summed(twins: list[Naive]) -> Tensor:
    states = [torch.stack(twin.states) for twin in twins]
    return objective(torch.stack([twin.pooled for twin in twins]), states, costs(twins))


def costs(twins: list[Naive]) -> Tensor:
    return torch.stack([twin.ponder for twin in twins])


def check(encoder: nn.Module, theirs: list[Naive], expected: dict[str, Tensor]) -> None:
    x, mask = inputs()
    ours = encoder(x, mask)
    penalty = ours.ponder if ours.auxiliary is None else ours.auxiliary
    rows = [states[: len(twin.states)] for states, twin in zip(ours.states, theirs, strict=True)]
    for row, twin in zip(rows, theirs, strict=True):
        torch.testing.assert_close(row, torch.stack(twin.states))
    torch.testing.assert_close(ours.pooled, torch.stack([twin.pooled for twin in theirs]))
    torch.testing.assert_close(penalty, costs(theirs))
    assert ours.depth.tolist() == [twin.depth for twin in theirs]
    mine = gradients(encoder, x, objective(ours.pooled, rows, penalty))
    assert mine.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(mine[name], grad, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("arm", LATENT)
def test_composition_equals_its_naive_twin(arm: str) -> None:
    encoder, config = build(LATENT[arm])
    x, _ = inputs()
    theirs = naive(encoder, config, x)
    expected = gradients(encoder, x, summed(theirs))
    early = [twin.depth < length for twin, length in zip(theirs, LENGTHS, strict=True)]
    if config["halt"] is None:
        assert not any(early)
    else:
        assert any(early), "sequences that all ran to their ends would prove little"
    if config["halt"] is not None and config["halt"]["penalty"]:
        assert 0 < sum(twin.ponder > 0 for twin in theirs) < len(theirs)
    for mode in ("compact", "batch", "none"):
        check(build(LATENT[arm], early_exit=mode)[0], theirs, expected)


@pytest.mark.parametrize("arm", GIVEN)
def test_given_trees_equal_their_naive_twins(arm: str) -> None:
    encoder, config = build(GIVEN[arm])
    x, _ = inputs()
    theirs = naive(encoder, config, x)
    check(encoder, theirs, gradients(encoder, x, summed(theirs)))
