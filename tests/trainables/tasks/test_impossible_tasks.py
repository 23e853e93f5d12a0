"""Impossible settings of tasks are refused."""

import pytest
from pydantic import ValidationError

from tests.oracles.solvers import transduction_solver
from tests.trainables.tasks.test_listops import SMALL
from trainables.task_catalog import task_config

SHORT = transduction_solver.SMALL


@pytest.mark.parametrize(
    ("name", "settings", "pattern"),
    [
        ("algorithms", {"test_lengths": [30, 30]}, "test_lengths"),
        ("algorithms", {"carry_step": True}, "carry_step"),
        ("flipflop", {"length": 511}, r"length .* 511"),
        ("flipflop", {"length": 1024}, "length=1024, long_length=1024"),
        ("flipflop", {"ignore": 0.1}, r"ignore .*0\.1, 0\.1, 0\.98"),
        ("listops", {"trees": 11_000}, "near_iid_examples"),
        ("listops", {**SMALL, "depth_max": 2, "arguments_max": 2, "trees": 400}, "410"),
        ("listops", {"depth_max": 20, "arguments_max": 10}, "500"),
        ("listops", {"length_ranges": [[200, 300], [200, 300]]}, r"\[\[200, 300\], \[200, 300\]\]"),
        ("listops", {"length_ranges": [[4, 8]]}, r"\[4, 8\]"),
        ("transduction", {**SHORT, "length_min": 7}, r"length_min .*length_max, got 7 and 6"),
        ("transduction", {**SHORT, "test_lengths": [9, 6]}, r"test_lengths .*length_max=6.* \[9, 6\]"),
        ("transduction", {**SHORT, "train_examples": 9999}, "5456"),
    ],
)
def test_impossible_task_settings_raise_an_error(
    name: str, settings: dict[str, object], pattern: str
) -> None:
    with pytest.raises(ValidationError, match=pattern):
        task_config({"name": name} | settings)
