"""Which trainings are compiled."""

from typing import Any

import pytest

from trainables.assembly import model_config
from trainables.training.compiled import LONG_ENOUGH, compiled
from trainables.training.config import train_config

GUT = {"name": "universal", "width": 8, "heads": 2}


@pytest.mark.parametrize(
    ("train", "model", "device", "expected"),
    [
        ({}, {}, "cuda", False),
        ({"compile": True}, {}, "cpu", True),
        ({"compile": "auto"}, {}, "cuda", True),
        ({"compile": "auto", "steps": LONG_ENOUGH - 1}, {}, "cuda", False),
        ({"compile": "auto"}, {}, "cpu", False),
        ({"compile": "auto", "checkpoint_activations": True}, {}, "cuda", False),
        ({"compile": "auto"}, {"name": "crvnn", "width": 8}, "cuda", False),
        ({"compile": "auto"}, GUT | {"attention": "flash"}, "cuda", False),
    ],
)
def test_by_itself_where_it_pays(
    train: dict[str, Any], model: dict[str, Any], device: str, expected: bool
) -> None:
    config = train_config({"steps": LONG_ENOUGH} | train)
    assert compiled(model_config(model or GUT), config, device) is expected


@pytest.mark.parametrize("name", ["sut", "ndr", "crvnn"])
def test_what_cannot_be_compiled_says_why(name: str) -> None:
    with pytest.raises(ValueError, match=rf"train\.compile must be false .*, got {name}: its .*; drop train"):
        compiled(model_config({"name": name}), train_config({"steps": 1, "compile": True}), "cpu")
