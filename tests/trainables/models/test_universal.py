"""Settings of the universal family, and the parts of its published models."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from trainables import costs
from trainables.assembly import build_model, initialise, model_config
from trainables.models.universal import Config, Decoder
from trainables.types import Batch, TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)
BASELINE = {
    "name": "universal",
    "width": 128,
    "max_layers": 10,
    "gate": True,
    "halt": {"unit": "sequence", "transition": True, "threshold": 0.999},
}


def config(**changes: Any) -> Config:
    config_ = model_config(BASELINE | changes)
    assert isinstance(config_, Config)
    return config_


def test_head_width_follows_from_the_width() -> None:
    config_ = config()
    assert (config_.size_of_head, config_.size_of_feedforward, config_.size_of_gate) == (16, 256, 256)


def test_defaults_equal_the_published_gut() -> None:
    assert Config() == Config(
        width=512,
        heads=8,
        head_width=None,
        max_layers=10,
        gate=True,
        pooling="end",
        kv="auto",
        dropout=0.1,
        attention_dropout=0.1,
    )
    assert (Config().size_of_head, Config().size_of_feedforward, Config().size_of_gate) == (64, 1024, 1024)
    assert Config().halt is not None
    assert Config().halt.model_dump() == {
        "unit": "sequence",
        "transition": True,
        "threshold": 0.999,
        "origin": 0,
        "rule": "undo",
        "halted_proposals": False,
    }


@pytest.mark.parametrize(
    ("changes", "mixture"),
    [
        ({}, False),
        ({"halt": None}, False),
        ({"halt": {"unit": "token"}}, True),
        ({"kv": "mixture"}, True),
        ({"kv": "states", "halt": {"unit": "token"}}, False),
    ],
)
def test_keys_and_values_come_from_the_mixture_if_tokens_halt(changes: dict[str, Any], mixture: bool) -> None:
    assert config(**changes).sees_mixture is mixture


@pytest.mark.parametrize(
    ("changes", "removed"),
    [
        ({"gate": False}, {"gate"}),
        ({"halt": None}, {"halt"}),
        ({"halt": {"unit": "token"}}, set()),
        ({"halt": {"transition": False}}, set()),
        ({"kv": "mixture"}, set()),
    ],
)
def test_arm_removes_only_its_part(changes: dict[str, Any], removed: set[str]) -> None:
    groups = costs.parameters_by_group(build_model(BASELINE, SHAPE, 0, "meta"))
    remaining = costs.parameters_by_group(build_model(BASELINE | changes, SHAPE, 0, "meta"))
    assert groups.keys() - remaining.keys() == removed
    same = {group for group in remaining if remaining[group] == groups[group]}
    assert remaining.keys() - same == ({"halt"} if changes.get("halt") == {"transition": False} else set())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"width": 100}, "width=100 and heads=8"),
        ({"width": 8}, r"head_width .* 1 \(width=8, heads=8\)"),
        ({"head_width": 5}, r"head_width .* 5 \(width=128, heads=8\)"),
        ({"gate": False, "gate_width": 64}, "gate=False and gate_width=64"),
        ({"halt": None, "kv": "mixture"}, "kv: mixture .*halt=None"),
        ({"early_exit": "compact", "halt": {"halted_proposals": True}}, "early_exit='compact'"),
        ({"halt": {"threshold": 0.0}}, r"halt.threshold.*\n.*greater_than"),
        ({"halt": {"threshold": 1.5}}, r"halt.threshold.*\n.*less_than_equal"),
        ({"halt": {"origin": 2}}, r"halt.origin.*\n.*literal_error"),
        ({"halt": {"unit": "sentence"}}, r"halt.unit.*\n.*literal_error"),
        ({"max_layers": 0}, r"max_layers.*\n.*greater_than_equal"),
        ({"max_dpeth": 3}, r"max_dpeth.*\n.*extra_forbidden"),
        ({"dropout": 1.0}, r"dropout.*\n.*less_than"),
    ],
)
def test_impossible_settings_raise_an_error(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        config(**changes)


def test_width_need_not_be_a_multiple_with_an_explicit_head_width() -> None:
    assert config(width=100, head_width=6).size_of_head == 6


def test_short_inputs_stop_at_their_length() -> None:
    """One token, START and END have at most four layers, independent of longer inputs in the batch."""
    model = build_model(BASELINE | {"width": 16, "halt": {"threshold": 1.0}}, SHAPE, 0).eval()
    mask = torch.arange(12) < torch.tensor([[1], [12]])
    encoded = model(
        Batch(torch.zeros(2, 12, dtype=torch.int64), mask, torch.zeros(2, dtype=torch.int64))
    ).encoded
    assert encoded.depth.tolist() == [4.0, 10.0]


@pytest.mark.parametrize(("mode", "run"), [("none", 10.0), ("batch", 1.0), ("compact", 1.0)])
def test_early_exit_ends_when_all_sequences_have_halted(mode: str, run: float) -> None:
    model = build_model(BASELINE | {"width": 16, "early_exit": mode}, SHAPE, 0).eval()
    model.encoder.halt.outer.bias.data.fill_(20.0)
    tokens = torch.zeros(3, 12, dtype=torch.int64)
    encoded = model(Batch(tokens, tokens == 0, tokens[:, 0])).encoded
    assert encoded.depth.tolist() == [0.0] * 3
    assert encoded.computed.tolist() == [run] * 3
    assert encoded.bound.tolist() == [10.0] * 3


def decode_twice(halted_proposals: bool) -> tuple[Tensor, Tensor]:
    """Return the states of answers read at once, and of the same answers extended token by token."""
    halt = {"threshold": 0.6, "halted_proposals": halted_proposals}
    decoder = Decoder(config(width=16, max_layers=6, halt=halt, early_exit="batch"))
    initialise(decoder, 3)
    decoder.double().eval().halt.outer.weight.data.mul_(8.0)
    stream = torch.Generator().manual_seed(1)
    y, memory = (torch.randn(2, 7, 16, generator=stream, dtype=torch.float64) for _ in range(2))
    everything = torch.ones(2, 7, dtype=torch.bool)
    decoding, states = decoder.begin(memory, everything, 1, 7), []
    for column in range(7):
        state, decoding = decoder.extend(y[:, column], decoding)
        states.append(state)
    expected = decoder(y, everything, memory, everything)
    assert 0 < expected.depth.min() < expected.depth.max() < 6
    return expected.states, torch.stack(states, 1)


def test_halted_proposals_count_in_decoding_as_in_training() -> None:
    outcomes = []
    for counted in (False, True):
        states, extended = decode_twice(counted)
        torch.testing.assert_close(extended, states)
        outcomes.append(states)
    assert not torch.allclose(*outcomes), "the test needs answers that the setting changes"
