"""Valid and invalid settings of `train`."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from trainables.training.config import train_config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "greater than 0"),
        ({"steps": 1.0}, "valid integer"),
        ({"steps": True}, "valid integer"),
        ({"lr": "3e-4"}, "valid number"),
        ({"lr": float("inf")}, "finite number"),
        ({"lr": 0.0}, "greater than 0"),
        ({"clip": 0}, "greater than 0"),
        ({"betas": [0.9]}, "Field required"),
        ({"betas": [0.9, 1.0]}, "less than 1"),
        ({"ponder_weight": -0.1}, "greater than or equal to 0"),
        ({"schedule": "rsqr"}, "'rsqrt'"),
        ({"precision": "fp8"}, "'bf16'"),
        ({"stepps": 3}, "Extra inputs are not permitted"),
        ({"warmup_steps": 3}, "warmup_steps must be 0 with schedule 'constant', got 3"),
        (
            {"schedule": "rsqrt", "warmup_steps": 11},
            "warmup_steps must be at most steps, got 11 and steps=10",
        ),
        (
            {"batch_tokens": 100},
            "batch_tokens needs order 'bucketed', got 'random': set it or give batch_size",
        ),
        ({"ema": 1.0}, "less than 1"),
        ({"hold_steps": 3}, "hold_steps needs schedule 'cosine', got hold_steps=3 and schedule='constant'"),
        (
            {"schedule": "cosine", "warmup_steps": 6, "hold_steps": 5},
            r"warmup_steps \+ hold_steps must be at most steps, got 11 and steps=10",
        ),
        ({"average_best": 2, "select": "last"}, "average_best needs select 'best', got average_best=2 and"),
        ({"select_by": "loss", "select": "last"}, "select_by needs validations that are compared, got sele"),
        ({"accumulate": 0}, "greater than 0"),
        (
            {"accumulate": 9, "batch_size": 8},
            "accumulate must be at most batch_size, got accumulate=9 and bat",
        ),
        (
            {"accumulate": 41, "batch_tokens": 40, "order": "bucketed"},
            "accumulate must be at most batch_tokens, got accumulate=41 and batch_tokens=40: take fewer",
        ),
        (
            {"accumulate": 4, "ranks": 3, "batch_size": 8},
            r"accumulate \* ranks must be at most batch_size, got accumulate=4, ranks=3 and batch_size=8",
        ),
        ({"ranks": 2, "precision": "fp16"}, "precision must be bf16 or fp32 if ranks share a batch, got"),
        ({"onecycle_beta1": True}, "onecycle_beta1 needs schedule 'linear', got 'constant'"),
    ],
)
def test_invalid_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        train_config({"steps": 10, **changes})


def test_select_by_is_allowed_wherever_validations_are_compared() -> None:
    for options in ({}, {"select": "last", "patience": 3}, {"select": "last", "halve_after": 3}):
        assert train_config({"steps": 10, "select_by": "loss", **options}).select_by == "loss"


def test_batch_tokens_determine_the_number_of_rows() -> None:
    config = train_config({"steps": 1, "batch_tokens": 100, "order": "bucketed", "batch_size": 7})
    assert [config.batch_rows(length) for length in (1, 30, 100, 101)] == [100, 3, 1, 1]
    assert train_config({"steps": 1, "batch_size": 7}).batch_rows(30) == 7


def test_accumulated_parts_have_nearly_equal_sizes() -> None:
    config = train_config({"steps": 1, "batch_size": 7, "accumulate": 3})
    assert (config.batch_rows(30), config.part_rows(30)) == (7, 3)
    assert train_config({"steps": 1, "batch_size": 7}).part_rows(30) == 7


def test_reading_settings_does_not_import_torch() -> None:
    code = "import sys, trainables.training.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
