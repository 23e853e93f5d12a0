"""The continuous recursive network and its published ablations equal a naive implementation."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.oracles import naive_crvnn
from tests.oracles.naive_universal import NaiveOutput
from tests.oracles.test_naive_encoders import (
    EXITS,
    WIDTH,
    assert_equal_outputs,
    gradients,
    naive_objective,
    perturb_parameters,
    stream,
)
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
    "crvnn.tanh_gelu": {"tanh_gelu": True},
    "crvnn.no_halt": {"halt": None},
    "crvnn.window": {"window": 3},
    "crvnn.no_window": {"window": 1},
}
FIXED_TREES: dict[str, dict[str, Any]] = {
    "crvnn.left_to_right": {"structure": "left-to-right"},
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


def run_both(change: dict[str, Any]) -> tuple[dict[str, Any], list[NaiveOutput]]:
    """Compare all modes of early exit with the naive outputs; return the settings and these outputs."""
    encoder, config = build(change)
    x = torch.randn(len(LENGTHS), PADDED, WIDTH, generator=stream(1), dtype=torch.float64).requires_grad_()
    mask = torch.arange(PADDED) < torch.tensor(LENGTHS)[:, None]
    parameters = dict(encoder.named_parameters())
    rows = zip(x, LENGTHS, strict=True)
    naive_outputs = [naive_crvnn.run(parameters, config, row[:length]) for row, length in rows]
    expected = gradients(encoder, {"x": x}, naive_objective(naive_outputs))
    for mode in EXITS if config["structure"] == "latent" else EXITS[:1]:
        encoder, _ = build(change, early_exit=mode)
        output = encoder(x, mask)
        if output.auxiliary is not None:
            output = replace(output, ponder=output.auxiliary)
        assert_equal_outputs(encoder, {"x": x}, output, naive_outputs, expected)
    return config, naive_outputs


@pytest.mark.parametrize("arm", LATENT)
def test_latent_composition_equals_the_naive_implementation(arm: str) -> None:
    config, naive_outputs = run_both(LATENT[arm])
    is_early = [output.depth < length for output, length in zip(naive_outputs, LENGTHS, strict=True)]
    assert any(is_early) == (config["halt"] is not None), "the test needs a sequence that ends early"
    if config["halt"] is not None and config["halt"]["penalty"]:
        assert 0 < sum(output.ponder > 0 for output in naive_outputs) < len(naive_outputs)


@pytest.mark.parametrize("arm", FIXED_TREES)
def test_fixed_trees_equal_the_naive_implementation(arm: str) -> None:
    run_both(FIXED_TREES[arm])
