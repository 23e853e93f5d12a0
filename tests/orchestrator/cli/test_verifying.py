"""Checks of single parts of a sweep, where what they need is gone."""

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.cli.verifying import data
from orchestrator.drivers.launch_folder import DEFAULT_WORKLOAD


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ({"name": "gone_kit.majority"}, "'gone_kit.majority' must be a module that is there"),
        ({"name": "gone"}, "no task named 'gone'"),
        ({"name": "listops", "of_another_version": 1}, "1 validation error"),
    ],
)
def test_data_of_a_task_that_is_not_there_any_more_cannot_be_told(task: dict[str, Any], why: str) -> None:
    whole: Any = SimpleNamespace(
        setup=SimpleNamespace(workload=DEFAULT_WORKLOAD, data_dir=None),
        plan=SimpleNamespace(confirm=None, arms=[SimpleNamespace(settings={"task": task})]),
        records=[],
    )
    (found,) = data(whole, lambda _: None)
    assert found.verdict == "unknown"
    assert why in found.detail
    assert "\n" not in found.detail
