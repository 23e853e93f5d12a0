"""Data of a custom task that contradict its declaration cause one clear error before the first trial."""

import shutil
import sys

import pytest

from tests.support.training_code.own_code import forgotten

pytestmark = pytest.mark.usefixtures("untracked")

TASK = """
from typing import Literal

import numpy as np
import pyarrow as pa

from trainables.settings import Settings
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 1


class Config(Settings):
    length: int = 4


def shape(config):
    return TaskShape(head="classify", vocabulary_size=4, num_classes=2, pad_id=0, length_max=config.length)


def splits(config):
    test = SplitInfo("far", "test", 1, 2 * config.length, 10)
    return tuple(SplitInfo(n, n, 1, config.length, 40) for n in ("train", "valid")) + (test,)


def build(config, split):
    rng = np.random.default_rng(len(split))
    many = 10 if split == "far" else 40
    tokens = [rng.integers(1, 4, rng.integers(1, config.length + 1)).tolist() for _ in range(many)]
    label = [len(row) % 2 for row in tokens]
    return pa.table({"tokens": pa.array(tokens, pa.list_(pa.uint8())), "label": pa.array(label, pa.int16())})


def decode(tokens):
    return " ".join(map(str, tokens))
"""
SPEC = """
name: theirs
question: Is it reported?
baseline:
  task: {name: theirs_of_task}
  model: {name: universal, width: 8, heads: 2, max_layers: 2}
  train: {steps: 2, batch_size: 4, report_every: 2}
arms: {minus-gate: {why: plain block, set: {model.gate: false}}}
confirm: {seeds: [1, 2], splits: [far]}
"""
IDS = ("rng.integers(1, 4, ", "rng.integers(1, 9, ")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "kit_of_task").mkdir()
    with forgotten(tmp_path):
        yield tmp_path


def write_task(folder, *changes):
    code = TASK
    for old, new in changes:
        assert old in code, old
        code = code.replace(old, new)
    (folder / "kit_of_task" / "theirs.py").write_text(code)
    # Python would use the bytecode of an earlier file with the same length and modification time.
    shutil.rmtree(folder / "kit_of_task" / "__pycache__", ignore_errors=True)
    (folder / "spec.yaml").write_text(SPEC.replace("theirs_of_task", "kit_of_task.theirs"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (IDS, "0 to 3, got 1 to 8"),
        (("len(row) % 2", "len(row)"), "0 to 1, got 1 to 4"),
        (("config.length + 1)", "config.length + 3)"), "got 1 to 6"),
        (("else 40", "else 39"), "got 39"),
        (("pa.uint8()", "pa.float32()"), "got list<"),
    ],
)
def test_data_that_contradict_the_declaration_stop_the_launch(folder, haltsweep, change, expected):
    write_task(folder, change)
    answer = haltsweep("launch", "spec.yaml", "--driver", "inline")
    assert answer.code == 2
    assert expected in answer.err
    assert "Traceback" not in answer.err
    assert not (folder / "runs" / "theirs").exists()


def test_data_of_an_earlier_declaration_are_refused(folder, haltsweep):
    """The task changes its declaration but keeps its VERSION."""
    write_task(folder)
    assert haltsweep("data", "build", "spec.yaml").code == 0
    write_task(folder, ("vocabulary_size=4", "vocabulary_size=3"))
    sys.modules.pop("kit_of_task.theirs")
    answer = haltsweep("launch", "spec.yaml", "--driver", "inline")
    assert answer.code == 2
    assert "0 to 2, got 1 to 3" in answer.err


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (('"far", "test"', '"far", "tset"'), "'tset' for 'far'"),
        (('("train", "valid")', '("train",)'), "valid, got 0"),
        (("vocabulary_size=4", "vocabulary_size=0"), "vocabulary_size, got 0"),
    ],
)
def test_check_refuses_impossible_declarations(folder, haltsweep, change, expected):
    write_task(folder, change)
    answer = haltsweep("check", "spec.yaml")
    assert answer.code == 2
    assert expected in answer.err
    assert "Traceback" not in answer.err
    assert "baseline.task" in answer.err


def test_valid_task_is_launched(folder, haltsweep):
    replacements = (("len(split))", "ord(split[0]))"), ("length: int = 4", "length: int = 40"))
    write_task(
        folder, *replacements, ("rng.integers(1, config.length + 1)", "rng.integers(20, config.length + 1)")
    )
    answer = haltsweep("launch", "spec.yaml", "--driver", "inline")
    assert answer.code == 0, answer
    assert "Look twice" not in answer.err


def test_launch_warns_of_validation_inputs_in_the_training_data(folder, haltsweep):
    write_task(folder)
    answer = haltsweep("launch", "spec.yaml", "--driver", "inline")
    assert answer.code == 0, answer
    assert "kit_of_task.theirs: 40 of 40 " in answer.err
