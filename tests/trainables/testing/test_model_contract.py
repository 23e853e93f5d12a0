"""Every test of the model contract fails for a model that violates only the tested property."""

import sys
from pathlib import Path
from typing import Any

import pytest

from trainables.testing import ModelContract, model_contract

MODEL = """
import random
from typing import Literal
import torch
from torch import nn
from trainables.settings import ModelSettings
from trainables.types import Encoded

GRAPHED = True

class Config(ModelSettings):
    causal: bool = False
    early_exit: Literal["compact", "none"] = "compact"

class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.calls = config, 0
        self.inner = nn.Linear(config.width, config.width)
        self.drop = nn.Dropout(config.dropout)
        {made}

    def forward(self, x, mask):
        self.calls += 1
        shares = mask[..., None].to(x.dtype)
        seen = (x * shares).cumsum(1) / shares.cumsum(1).clamp(min=1)
        if not self.config.causal:
            seen = seen[:, -1:].expand_as(x)
        states = self.drop(self.inner(x + seen)) * shares
        {states}
        pooled = states.sum(1) / shares.sum(1)
        encoded = Encoded.of_fixed_depth(states, pooled, 1)
        {encoded}
        return encoded

def forward_flops(config, length, layers):
    return {flops}

def depth_range(config, length):
    return {depths}

def activation_bytes(config, rows, length):
    return {bytes} * 4 * rows * length * config.width
"""
VALID_PARTS = {
    "made": "",
    "states": "",
    "encoded": "",
    "flops": "2 * length * config.width**2",
    "depths": "1, 1",
    "bytes": "3",
}
REPLACE_ENCODED = "from dataclasses import replace; encoded = replace(encoded, "
FAULTS: dict[str, tuple[str, dict[str, str]]] = {
    "a wrong shape": (
        "test_outputs_have_declared_shapes_and_bounds",
        {"encoded": f"{REPLACE_ENCODED}states=states[..., :3], pooled=pooled[:, :3])"},
    ),
    "the length of padding": ("test_padding_never_leaks", {"states": "states = states + mask.shape[1]"}),
    "other rows of the batch": (
        "test_a_sample_does_not_depend_on_its_batch",
        {"states": "states = states + states.sum()"},
    ),
    "a parameter that is never used": (
        "test_every_parameter_gets_a_gradient",
        {"made": "self.spare = nn.Linear(2, 2)"},
    ),
    "a generator that nobody seeds": (
        "test_dropout_is_a_function_of_seed_and_step",
        {"states": "states = states * random.random()"},
    ),
    "a constructor that draws for all seeds alike": (
        "test_building_is_a_function_of_the_seed_alone",
        {"made": "self.register_buffer('drawn', torch.rand(2))"},
    ),
    "later tokens": (
        "test_no_output_depends_on_a_later_token",
        {"states": "states = states + x.sum(1, keepdim=True)"},
    ),
    "gradients of later tokens": (
        "test_no_gradient_reaches_a_later_token",
        {"states": "states = states + x.sum(1, keepdim=True)"},
    ),
    "how long the sequence becomes": (
        "test_causal_encoder_ignores_later_tokens",
        {"states": "states = states + mask.sum(1)[:, None, None]"},
    ),
    "an exit that changes results": (
        "test_early_exit_changes_no_result_and_no_gradient",
        {"states": "states = states * (1 + (self.config.early_exit == 'none'))"},
    ),
    "layers run in vain": (
        "test_no_layer_runs_for_halted_units",
        {"encoded": f"{REPLACE_ENCODED}computed=encoded.computed + 2, bound=encoded.bound + 2)"},
    ),
    "FLOPs made up": ("test_flop_formulas_match_counted_flops", {"flops": "length * config.width**2"}),
    "memory made up": ("test_memory_formulas_approximate_counted_memory", {"bytes": "30"}),
    "a depth that costs do not know": (
        "test_depth_is_within_the_range_of_its_cost_formula",
        {"depths": "2, 3"},
    ),
    "FLOPs that do not grow": ("test_flops_grow_with_length_and_layers", {"flops": "100"}),
    "sums in 16 bits": (
        "test_sums_stay_in_32_bits_under_autocast",
        {"encoded": f"{REPLACE_ENCODED}ponder=encoded.ponder.bfloat16())"},
    ),
    "a number that the host waits for": (
        "test_replayed_steps_equal_executed_steps",
        {"states": "states = states * states.sum().item()"},
    ),
    "a mean over the rows of a batch": (
        "test_filler_rows_change_no_result",
        {"states": "states = states + states.mean()"},
    ),
    "state that is not saved": (
        "test_trial_stopped_at_every_report_ends_like_an_uninterrupted_one",
        {"states": "states = states + self.calls / 10"},
    ),
}


def contract(folder: Path, name: str, **parts: str) -> ModelContract:
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "mine" / f"{name}.py").write_text(MODEL.format(**VALID_PARTS | parts))
    sys.modules.pop(f"mine.{name}", None)
    return model_contract(f"mine.{name}")()


def call(tested: ModelContract, test: str, tmp_path_factory: Any) -> None:
    """Run one test of a contract for each of its cases, as pytest does."""
    method = getattr(tested, test)
    (argument, *other_arguments) = method.__code__.co_varnames[1 : method.__code__.co_argcount]
    folders = {"tmp_path": tmp_path_factory.mktemp("trial"), "tmp_path_factory": tmp_path_factory}
    for raw in getattr(tested, f"every_{argument}")().values():
        method(raw, **{name: folders[name] for name in other_arguments})


@pytest.mark.parametrize("fault", FAULTS)
def test_contract_finds_a_violation(fault: str, tmp_path: Path, tmp_path_factory: Any) -> None:
    test, parts = FAULTS[fault]
    call(contract(tmp_path, "sound"), test, tmp_path_factory)
    with pytest.raises(AssertionError):
        call(contract(tmp_path, "broken", **parts), test, tmp_path_factory)


def test_arms_have_the_values_that_fields_allow(tmp_path: Path) -> None:
    tested = contract(tmp_path, "sound")
    assert list(tested.every_arm()) == ["small", "causal=True"]
    assert tested.every_writing() == {}
    contract_with_typo = model_contract("mine.sound", arms={"odd": {"widht": 3}})()
    with pytest.raises(ValueError, match="widht"):
        contract_with_typo.every_arm()
