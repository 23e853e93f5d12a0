"""Trials of one sweep that would read different data: refused, or told first."""

import shutil
from dataclasses import replace

import pytest

from orchestrator import read
from orchestrator.report.results.origin import data_versions
from tests.orchestrator.report.studies import study
from tests.support.training_code.own_code import forgotten, interrupt_first_trial

pytestmark = pytest.mark.usefixtures("untracked")

INLINE = ("--driver", "inline")
TASK = """
import random
from typing import Literal

import pyarrow as pa

from trainables.settings import Settings
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 1
SIZES = {"train": 40, "valid": 20, "test": 20}


class Config(Settings):
    name: Literal["tosses.coin"] = "tosses.coin"


def shape(config):
    return TaskShape("classify", 4, 2, 0, 9)


def splits(config):
    return tuple(SplitInfo(role, role, 9, 9, size) for role, size in SIZES.items())


def build(config, split):
    rows = [random.SystemRandom().choices([1, 2, 3], k=9) for _ in range(SIZES[split])]
    label = [int(row.count(1) > row.count(2)) for row in rows]
    return pa.table({"tokens": pa.array(rows, pa.list_(pa.uint8())), "label": pa.array(label, pa.int16())})


def decode(tokens):
    return " ".join(map(str, tokens))
"""
SPEC = """
name: tossed
question: Does the gate matter?
baseline:
  task: {name: tosses.coin}
  model: {name: universal, width: 8, heads: 2, max_layers: 2}
  train: {steps: 2, batch_size: 8, lr: 0.003}
arms: {minus-gate: {why: no gate, set: {model.gate: false}}}
confirm: {seeds: [1, 2, 3], splits: [test]}
"""


@pytest.fixture
def anew(haltsweep, tmp_path):
    """A command as in a new process, in a folder with a task whose data are others at each build."""
    (tmp_path / "tosses").mkdir()
    (tmp_path / "tosses/__init__.py").touch()
    (tmp_path / "tosses/coin.py").write_text(TASK)
    (tmp_path / "tossed.yaml").write_text(SPEC)

    def run(*arguments):
        with forgotten(tmp_path):
            return haltsweep(*arguments)

    return run


def test_changed_data_are_refused_or_reported(anew, tmp_path):
    assert anew("launch", "tossed.yaml", *INLINE).code == 0
    more = ("extend", "tossed", "--seeds", "[4]", *INLINE)
    shutil.move(tmp_path / "data", tmp_path / "kept")
    before = (tmp_path / "runs/tossed/plan.json").read_bytes()
    shown = anew(*more)
    assert shown.code == 2
    assert (tmp_path / "runs/tossed/plan.json").read_bytes() == before
    assert "trials of one sweep must read the same data, but those of tossed have changed" in shown.err
    for split in ("test", "train", "valid"):
        assert f"tosses.coin/{split} was of digest " in shown.err
    assert shown.err.count("(6 trials), and is ") == 3
    assert "--changed-code" in shown.err
    built = tmp_path / "data"
    built.rename(tmp_path / "others")
    (tmp_path / "kept").rename(built)
    assert anew(*more).code == 0, "these are the data that trials have read"
    assert read.report("tossed").data_versions == ""
    shutil.rmtree(built)
    shown = anew("extend", "tossed", "--seeds", "[5]", "--changed-code", *INLINE)
    assert shown.code == 0, shown.err
    sentence = read.report("tossed").data_versions
    assert sentence.startswith("Trials read 2 versions of tosses.coin/test (digest ")
    assert ": 8 trials; " in sentence
    assert sentence.endswith("differences between trials may be caused by the data.")
    assert sentence[:40] in shown.err
    text = (tmp_path / "runs/tossed/report/report.md").read_text()
    assert text.index(f"**{sentence}**") < text.index("## Answer")


def test_a_killed_sweep_does_not_continue_with_changed_data(anew, tmp_path, monkeypatch):
    with interrupt_first_trial(monkeypatch):
        assert anew("launch", "tossed.yaml", *INLINE).code == 130
    shutil.rmtree(tmp_path / "data")
    for command in (("resume", "tossed"), ("launch", "tossed.yaml", "--continue")):
        shown = anew(*command, *INLINE)
        assert shown.code == 2, shown
        assert "(1 trial), and is " in shown.err
    assert anew("resume", "tossed", "--changed-code", *INLINE).code == 0


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ({"a/test": "1"}, {"a/test": "1"}, False),
        ({"a/test": "1"}, {"a/test": "2"}, True),
        ({"a/test": "1"}, {"a/test": "1, 2"}, False),
        ({"a/test": "1, 3"}, {"a/test": "1, 2"}, True),
        ({"a/test": "1"}, {"b/test": "2"}, False),
        ({"a/test": "1"}, {}, False),
    ],
)
def test_additional_splits_are_no_change_of_data(one, other, differ):
    trial = next(each for each in study().records if each.outcome is not None)
    known = [replace(trial, provenance={"data": each}) for each in (one, other)]
    assert bool(data_versions(known)) == differ
