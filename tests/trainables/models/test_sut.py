"""Settings and initial gates of the Sparse Universal Transformer."""

import pytest
import torch

from trainables.assembly import build_model
from trainables.models.sut import Config
from trainables.types import Batch, TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)


def test_defaults_equal_the_published_base_model() -> None:
    config = Config()
    assert (config.width, config.max_layers, config.dropout, config.gating_dropout) == (512, 6, 0.2, 0.2)
    experts = {"experts": 24, "active": 4, "sampled": 0}
    assert config.attention.model_dump() == experts | {"heads": 4, "head_width": 64, "window": 64}
    assert config.feedforward.model_dump() == experts | {"width": 512}
    assert config.halt.threshold == 0.999
    assert (config.norm, config.balance) == ("post", "mutual-information")


def test_gates_start_at_one_half() -> None:
    """The expected number of layers is 1/2 + 2/4 + 3/8 + 4/16, plus 5 times the remaining sixteenth."""
    tokens = torch.arange(18).reshape(3, 6) % 10
    model = build_model({"name": "sut", "width": 16, "max_layers": 5}, SHAPE, 0).double().eval()
    encoded = model(Batch(tokens, tokens >= 0, tokens[:, 0])).encoded
    assert encoded.ponder.tolist() == pytest.approx([1 / 2 + 2 / 4 + 3 / 8 + 4 / 16 + 5 / 16] * 3)
    assert encoded.depth.tolist() == [5.0] * 3
