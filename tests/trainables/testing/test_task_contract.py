"""Every test of the task contract fails for a task that violates only the tested property."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from trainables.testing import task_contract

TASK = """
import random
import pyarrow as pa
from trainables.settings import Settings
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 1
calls = 0

class Config(Settings):
    data_seed: int = 0

def shape(config):
    return TaskShape("classify", vocabulary_size=4, num_classes=2, pad_id=3, length_max=4)

def splits(config):
    return tuple(SplitInfo(role, role, 4, 4, 4) for role in {roles})

def build(config, split):
    global calls
    calls += 1
    first = {starts}[split]
    rows = [[(number >> bit) % 2 for bit in range(4)] for number in range(first, first + {count})]
    if {seeded} and config.data_seed:
        rows = rows[::-1]
    labels = [{label} for row in rows]
    {change}
    tokens = pa.array(rows, type=pa.large_list(pa.uint8()))
    return pa.table({{"tokens": tokens, "label": pa.array(labels, type=pa.int16())}})

def decode(tokens):
    return "".join(map(str, tokens))
"""
VALID_PARTS = {
    "roles": "('train', 'valid', 'test')",
    "starts": "{'train': 0, 'valid': 4, 'test': 8}",
    "count": "4",
    "label": "row[0]",
    "seeded": "True",
    "change": "",
}
FAULTS: dict[str, tuple[str, dict[str, str]]] = {
    "two splits that overlap": (
        "test_no_example_is_in_two_splits",
        {"starts": "{'train': 0, 'valid': 3, 'test': 8}"},
    ),
    "no split to steer the search": (
        "test_splits_have_roles_and_unique_names",
        {"roles": "('train', 'test')"},
    ),
    "data that depend on what was built before": (
        "test_equal_settings_build_equal_bytes",
        {"change": "labels[0] = calls % 2"},
    ),
    "data of another process": (
        "test_another_process_builds_equal_bytes",
        {"change": "import os; labels[0] = int(os.environ.get('PYTHONHASHSEED') == '7')"},
    ),
    "a seed without effect": ("test_another_seed_gives_other_data", {"seeded": "False"}),
    "fewer examples than announced": (
        "test_lengths_and_example_counts_match_the_declaration",
        {"count": "3"},
    ),
    "tokens that are padding": ("test_shape_agrees_with_the_data", {"change": "rows[0][0] = 3"}),
    "an empty input": ("test_batches_are_right_padded", {"change": "rows[0] = []"}),
    "wrong labels": ("test_labels_match_an_independent_solver", {"label": "1 - row[0]"}),
}


def call(folder: Path, name: str, test: str, parts: dict[str, str]) -> None:
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "mine" / f"{name}.py").write_text(TASK.format(**VALID_PARTS | parts))
    tested = task_contract(f"mine.{name}", solve=lambda text: int(text[0]))()
    method: Any = getattr(tested, test)
    arguments = [parameter for parameter in inspect.signature(method).parameters if parameter != "tmp_path"]
    for values in [getattr(tested, f"every_{arguments[0]}")().values()] if arguments else [[None]]:
        for value in values:
            method(*([value] if arguments else []))


@pytest.mark.parametrize("fault", FAULTS)
def test_contract_finds_a_violation(fault: str, tmp_path: Path) -> None:
    test, parts = FAULTS[fault]
    call(tmp_path, "sound", test, {})
    with pytest.raises(AssertionError):
        call(
            tmp_path, f"broken{[*FAULTS].index(fault)}", test, parts
        )  # stored splits have the name of the task
