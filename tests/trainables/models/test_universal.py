"""Settings of the universal family."""

from typing import Any

import pytest

from trainables.assembly import model_config
from trainables.models.universal import Config

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
    assert config(width=100, head_width=6).size_of_head == 6


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
