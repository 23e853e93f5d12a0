"""Settings of the continuous recursive network, its halting, and the parts of each arm."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from trainables import costs
from trainables.assembly import build_model, model_config
from trainables.models.crvnn import Config
from trainables.types import Batch, Encoded, TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)
SMALL = {"name": "crvnn", "width": 16, "cell_width": 20}


def encode(score: float | None = None, **changes: Any) -> Encoded:
    """Encode three sequences of 1, 4 and 9 tokens; with `score`, all positions have this score."""
    model = build_model(SMALL | changes, SHAPE, 0).eval()
    if score is not None:
        model.encoder.scorer.outer.weight.data.zero_()
        model.encoder.scorer.outer.bias.data.fill_(score)
    tokens = torch.arange(27).reshape(3, 9) % 10
    mask = torch.arange(9) < torch.tensor([[1], [4], [9]])
    encoded: Encoded = model(Batch(tokens, mask, tokens[:, 0])).encoded
    return encoded


def test_defaults_equal_the_published_network() -> None:
    config = Config()
    assert (config.width, config.size_of_cell, config.window) == (128, 512, 5)
    assert (config.dropout, config.cell_dropout, config.readout_dropout) == (0.1, 0.1, 0.1)
    assert (config.activation, config.cell) == ("gelu", "grc")
    assert (config.retriever, config.modulated, config.transition_features) == ("additive", True, None)
    assert config.halt is not None
    assert config.halt.model_dump() == {"threshold": 0.1, "penalty": False}


@pytest.mark.parametrize(
    ("changes", "sums"),
    [
        (
            {},
            {
                "cell.leaf": 16 + 16,
                "cell.inner": 32 + 20,
                "cell.outer": 20 + 64,
                "scorer.inner": 80 + 16,
                "scorer.outer": 16 + 1,
            },
        ),
        ({"cell": "lstm", "cell_width": None}, {"cell.leaf": 16 + 16, "cell.outer": 16 + 16}),
    ],
)
def test_initial_distribution_is_glorot_uniform(changes: dict[str, Any], sums: dict[str, int]) -> None:
    """Bounds depend on inputs plus outputs; for the LSTM cell, on those of one gate and one child."""
    encoder = build_model(SMALL | changes | {"initial": "glorot"}, SHAPE, 0).encoder
    for name, fans in sums.items():
        module, bound = encoder.get_submodule(name), (6 / fans) ** 0.5
        assert 0.85 * bound <= module.weight.abs().max() <= bound
        assert module.bias.abs().max() < 1e-5


def test_low_scores_compose_nothing() -> None:
    """Every sequence runs all steps, and the penalty measures the uncomposed tokens before the last one."""
    encoded = encode(-100.0, halt={"penalty": True})
    assert encoded.depth.tolist() == [1.0, 4.0, 9.0]
    assert encoded.auxiliary is not None
    expected = torch.tensor([1.0, 4.0, 9.0]).log()
    torch.testing.assert_close(encoded.auxiliary, expected)


def test_high_scores_without_competition_compose_in_one_step() -> None:
    """One step composes all tokens but the last one, so the penalty is zero."""
    encoded = encode(100.0, modulated=False, halt={"penalty": True})
    assert encoded.depth.tolist() == [1.0] * 3
    assert encoded.auxiliary is not None
    assert encoded.auxiliary.tolist() == [0.0] * 3


@pytest.mark.parametrize(("mode", "run"), [("compact", [1, 1, 1]), ("batch", [1, 1, 1]), ("none", [1, 4, 9])])
def test_early_exit_ends_when_all_sequences_have_halted(mode: str, run: list[int]) -> None:
    encoded = encode(100.0, modulated=False, early_exit=mode)
    assert encoded.depth.tolist() == [1.0] * 3
    assert encoded.computed.tolist() == run
    assert encoded.bound.tolist() == [1.0, 4.0, 9.0]


def test_higher_threshold_halts_earlier() -> None:
    low, high = (encode(0.0, halt={"threshold": threshold}).depth.sum() for threshold in (0.1, 0.6))
    assert high < low


def test_without_halting_every_step_runs_without_a_penalty() -> None:
    encoded = encode(100.0, modulated=False, halt=None)
    assert encoded.auxiliary is None
    assert encoded.computed.tolist() == [1.0, 4.0, 9.0]


@pytest.mark.parametrize(
    ("structure", "depth"), [("left-to-right", [1.0, 4.0, 9.0]), ("balanced", [0.0, 2.0, 4.0])]
)
def test_fixed_trees_have_the_expected_depth(structure: str, depth: list[float]) -> None:
    encoded = encode(structure=structure)
    assert encoded.depth.tolist() == encoded.computed.tolist() == encoded.bound.tolist() == depth


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({"transition_features": 4}, {"scorer"}),
        ({"retriever": "product"}, set()),
        ({"modulated": False}, set()),
        ({"activation": "relu"}, set()),
        ({"halt": None}, set()),
        ({"shared_norm": True}, {"norm"}),
        ({"structure": "balanced"}, {"scorer", "boundaries"}),
        ({"structure": "left-to-right"}, {"scorer", "boundaries", "start"}),
    ],
)
def test_arm_changes_only_its_part(changes: dict[str, Any], changed: set[str]) -> None:
    groups = costs.parameters_by_group(build_model(SMALL, SHAPE, 0, "meta"))
    changed_groups = costs.parameters_by_group(build_model(SMALL | changes, SHAPE, 0, "meta"))
    different = {group for group in groups | changed_groups if groups.get(group) != changed_groups.get(group)}
    assert different == changed


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"window": 4}, "window=4"),
        ({"cell": "lstm"}, "cell='lstm' with cell_width=20"),
        ({"halt": {"threshold": 1.0}}, r"halt.threshold.*\n.*less_than"),
        ({"structure": "random"}, r"structure.*\n.*literal_error"),
        ({"max_layers": 3}, r"max_layers.*\n.*extra_forbidden"),
    ],
)
def test_impossible_settings_raise_an_error(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        model_config(SMALL | changes)
