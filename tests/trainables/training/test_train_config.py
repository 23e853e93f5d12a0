"""Valid and invalid settings of `train`."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from trainables.training.config import train_config


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"steps": 0}, "greater_than"),
        ({"steps": 1.0}, "int_type"),
        ({"steps": True}, "int_type"),
        ({"lr": "3e-4"}, "float_type"),
        ({"lr": float("inf")}, "finite_number"),
        ({"lr": 0.0}, "greater_than"),
        ({"clip": 0}, "greater_than"),
        ({"betas": [0.9]}, "missing"),
        ({"betas": [0.9, 1.0]}, "less_than"),
        ({"ponder_weight": -0.1}, "greater_than_equal"),
        ({"schedule": "rsqr"}, "literal_error"),
        ({"precision": "fp8"}, "literal_error"),
        ({"stepps": 3}, "extra_forbidden"),
        ({"ema": 1.0}, "less_than"),
        ({"accumulate": 0}, "greater_than"),
    ],
)
def test_invalid_field_is_refused(changes: dict[str, object], kind: str) -> None:
    with pytest.raises(ValidationError) as caught:
        train_config({"steps": 10, **changes})
    assert [(error["loc"][0], error["type"]) for error in caught.value.errors()] == [(*changes, kind)]


@pytest.mark.parametrize(
    ("changes", "quoted"),
    [
        ({"warmup_steps": 3}, "'constant', got 3"),
        ({"schedule": "rsqrt", "warmup_steps": 11}, "11 and steps=10"),
        ({"batch_tokens": 100}, "batch_tokens .*'bucketed', got 'random'"),
        ({"hold_steps": 3}, "hold_steps=3 and schedule='constant'"),
        ({"schedule": "cosine", "warmup_steps": 6, "hold_steps": 5}, "11 and steps=10"),
        ({"average_best": 2, "select": "last"}, "average_best=2"),
        ({"select_by": "loss", "select": "last"}, "select_by"),
        ({"accumulate": 9, "batch_size": 8}, "accumulate=9 and batch_size=8"),
        ({"accumulate": 41, "batch_tokens": 40, "order": "bucketed"}, "accumulate=41 and batch_tokens=40"),
        ({"accumulate": 4, "ranks": 3, "batch_size": 8}, "accumulate=4, ranks=3 and batch_size=8"),
        ({"ranks": 2, "precision": "fp16"}, "precision .*ranks"),
        ({"onecycle_beta1": True}, "onecycle_beta1 .*'linear', got 'constant'"),
    ],
)
def test_conflicting_fields_are_named_with_their_values(changes: dict[str, object], quoted: str) -> None:
    with pytest.raises(ValidationError, match=quoted):
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
