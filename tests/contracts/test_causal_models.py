"""What every model with a causal form promises: nothing that comes later changes what is said of a token."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.test_models import CASES, build
from trainables import catalog
from trainables.assembly import model_config
from trainables.layers.dropout import set_dropout_context

ROWS, LENGTH, WIDTH = 3, 9, 12


def causal(raw: dict[str, Any]) -> dict[str, Any]:
    return raw | {
        field: value
        for field, value in {"causal": True, "pooling": "end", "boundaries": False}.items()
        if field in fields(raw)
    }


def fields(raw: dict[str, Any]) -> Any:
    return catalog.load("models", raw["name"]).Config.model_fields


def told_the_length(raw: dict[str, Any]) -> bool:
    """A fixed number of chunks cannot be had without the length, although no later token is looked at."""
    return raw.get("chunk", {}).get("by") == "count"


def always_causal(raw: dict[str, Any]) -> bool:
    return "causal" not in fields(raw) and getattr(model_config(raw), "causal", False)


ARMS = {
    label: causal(raw)
    for label, raw in CASES.items()
    if always_causal(raw) or ("causal" in fields(raw) and not raw.get("causal"))
}
every_causal_model = pytest.mark.parametrize("raw", ARMS.values(), ids=ARMS)


def lively(raw: dict[str, Any], **more: Any) -> nn.Module:
    """Means over short sequences differ little: make halting feel it."""
    model = build(raw, **more).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("halt.outer.weight"):
            parameter.data.mul_(3.0)
    return model


def inputs(seed: int = 0) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, LENGTH, WIDTH, generator=stream, dtype=torch.float64)
    return x, torch.ones(ROWS, LENGTH, dtype=torch.bool)


@every_causal_model
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_no_output_depends_on_a_later_token(raw: dict[str, Any], dropout: float) -> None:
    """Through attention, means, halting and memory; in training too, where dropout keeps its masks."""
    model = lively(raw, dropout=dropout, attention_dropout=dropout)
    x, mask = inputs()
    for seen in (1, 4, 8):
        outputs = []
        for later in (x[:, seen:], inputs(seed=1)[0][:, seen:] * 5):
            set_dropout_context(model.train(dropout > 0), seed=2, step=0)
            outputs.append(model.encoder(torch.cat((x[:, :seen], later), 1), mask).states[:, :seen])
        torch.testing.assert_close(outputs[0], outputs[1])


@every_causal_model
def test_no_gradient_reaches_a_later_token(raw: dict[str, Any]) -> None:
    model = lively(raw)
    x, mask = inputs()
    x.requires_grad_()
    (grad,) = torch.autograd.grad(model.encoder(x, mask).states[:, :5].sum(), x)
    assert grad[:, :5].abs().sum() > 0
    assert not grad[:, 5:].any()


@every_causal_model
def test_the_beginning_of_a_sequence_is_encoded_without_its_end(raw: dict[str, Any]) -> None:
    """Nobody needs to know how long a sequence will become."""
    if told_the_length(raw):
        return
    model = lively(raw)
    x, mask = inputs()
    whole = model.encoder(x, mask).states
    for seen in (1, 4, 8):
        torch.testing.assert_close(model.encoder(x[:, :seen], mask[:, :seen]).states, whole[:, :seen])


@every_causal_model
def test_positions_halt_at_depths_of_their_own(raw: dict[str, Any]) -> None:
    """Otherwise the tests above would prove little of halting."""
    if raw.get("halt") is None:
        return
    x, mask = inputs()
    depths = {
        round(lively(raw).encoder(x[:, :seen], mask[:, :seen]).depth.sum().item() / seen, 6)
        for seen in (1, 4, 9)
    }
    assert len(depths) > 1


@every_causal_model
def test_a_causal_model_has_no_start_and_end(raw: dict[str, Any]) -> None:
    model = build(raw).eval()
    x, mask = inputs()
    assert model.encoder(x, mask).states.shape == x.shape
    assert not [name for name, _ in model.named_parameters() if "boundaries" in name]
