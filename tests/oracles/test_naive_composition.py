"""The continuous recursive network and its published ablations equal a naive implementation."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import naive_crvnn
from tests.oracles.naive_universal import NaiveOutput
from tests.oracles.test_naive_encoders import WIDTH, gradients, objective, perturb_parameters, stream
from trainables import catalog
from trainables.assembly import initialise, model_config

FIRST_PUBLISHED = {"transition_features": 3, "shared_norm": True, "halt": {"threshold": 0.1, "penalty": True}}
LATENT: dict[str, dict[str, Any]] = {
    "crvnn": {},
    "crvnn.first_published": FIRST_PUBLISHED,
    "crvnn.product_retriever": {"retriever": "product"},
    "crvnn.no_modulation": FIRST_PUBLISHED | {"modulated": False},
    "crvnn.no_transition": FIRST_PUBLISHED | {"transition_features": None},
    "crvnn.no_halt_penalty": FIRST_PUBLISHED | {"halt": {"threshold": 0.4}},
    "crvnn.relu": {"activation": "relu"},
    "crvnn.lstm_cell": {"cell": "lstm", "cell_width": None},
    "crvnn.lstm_tanh_gelu": {"cell": "lstm", "cell_width": None, "tanh_gelu": True},
    "crvnn.tanh_gelu": {"tanh_gelu": True},
    "crvnn.no_halt": {"halt": None},
    "crvnn.window": {"window": 3},
    "crvnn.no_window": {"window": 1},
}
FIXED_TREES: dict[str, dict[str, Any]] = {
    "crvnn.left_to_right": {"structure": "left-to-right"},
    "crvnn.left_to_right_tanh_gelu": {"structure": "left-to-right", "shared_norm": True, "tanh_gelu": True},
    "crvnn.balanced": {"structure": "balanced"},
    "crvnn.left_to_right_lstm": {"structure": "left-to-right", "cell": "lstm", "cell_width": None},
    "crvnn.balanced_lstm": {"structure": "balanced", "cell": "lstm", "cell_width": None},
}
LENGTHS, PADDED = (6, 1, 2, 7, 5), 9
SMALL = {"name": "crvnn", "width": WIDTH, "cell_width": 7, "halt": {"threshold": 0.4}}


def build(change: dict[str, Any], **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    config = model_config(SMALL | change | options)
    encoder = catalog.load("models", "crvnn").Encoder(config).double()
    initialise(encoder, seed=5)
    # Larger scores make sequences finish at different depths.
    perturb_parameters(encoder, {"scorer.outer.weight": 4.0}, noisy=("norm.weight", "bias", "start.weight"))
    if encoder.scorer is not None:
        encoder.scorer.outer.bias.data.add_(1.0)
    return encoder, config.model_dump()


def inputs() -> tuple[Tensor, Tensor]:
    x = torch.randn(len(LENGTHS), PADDED, WIDTH, generator=stream(1), dtype=torch.float64)
    return x.requires_grad_(), torch.arange(PADDED) < torch.tensor(LENGTHS)[:, None]


def naive(encoder: nn.Module, config: dict[str, Any], x: Tensor) -> list[NaiveOutput]:
    parameters = dict(encoder.named_parameters())
    rows = zip(x, LENGTHS, strict=True)
    return [naive_crvnn.run(parameters, config, row[:length]) for row, length in rows]


def naive_objective(outputs: list[NaiveOutput]) -> Tensor:
    states = [torch.stack(output.states) for output in outputs]
    return objective(torch.stack([output.pooled for output in outputs]), states, costs(outputs))


def costs(outputs: list[NaiveOutput]) -> Tensor:
    return torch.stack([output.ponder for output in outputs])


def assert_equal_outputs(
    encoder: nn.Module, naive_outputs: list[NaiveOutput], expected: dict[str, Tensor]
) -> None:
    x, mask = inputs()
    output = encoder(x, mask)
    penalty = output.ponder if output.auxiliary is None else output.auxiliary
    rows = [
        states[: len(naive_output.states)]
        for states, naive_output in zip(output.states, naive_outputs, strict=True)
    ]
    for row, naive_output in zip(rows, naive_outputs, strict=True):
        torch.testing.assert_close(row, torch.stack(naive_output.states))
    torch.testing.assert_close(
        output.pooled, torch.stack([naive_output.pooled for naive_output in naive_outputs])
    )
    torch.testing.assert_close(penalty, costs(naive_outputs))
    assert output.depth.tolist() == [naive_output.depth for naive_output in naive_outputs]
    grads = gradients(encoder, x, objective(output.pooled, rows, penalty))
    assert grads.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(grads[name], grad, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("arm", LATENT)
def test_latent_composition_equals_the_naive_implementation(arm: str) -> None:
    encoder, config = build(LATENT[arm])
    x, _ = inputs()
    naive_outputs = naive(encoder, config, x)
    expected = gradients(encoder, x, naive_objective(naive_outputs))
    is_early = [output.depth < length for output, length in zip(naive_outputs, LENGTHS, strict=True)]
    if config["halt"] is None:
        assert not any(is_early)
    else:
        assert any(is_early), "the test needs a sequence that ends early"
    if config["halt"] is not None and config["halt"]["penalty"]:
        assert 0 < sum(output.ponder > 0 for output in naive_outputs) < len(naive_outputs)
    for mode in ("compact", "batch", "none"):
        assert_equal_outputs(build(LATENT[arm], early_exit=mode)[0], naive_outputs, expected)


@pytest.mark.parametrize("arm", FIXED_TREES)
def test_fixed_trees_equal_the_naive_implementation(arm: str) -> None:
    encoder, config = build(FIXED_TREES[arm])
    x, _ = inputs()
    naive_outputs = naive(encoder, config, x)
    assert_equal_outputs(encoder, naive_outputs, gradients(encoder, x, naive_objective(naive_outputs)))
