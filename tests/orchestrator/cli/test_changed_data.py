"""Changed data within one sweep: refusals and warnings."""

import re
import shutil
from dataclasses import replace

import pytest

from orchestrator import read
from orchestrator.report.results.origin import data_versions
from tests.orchestrator.report.studies import make_study
from tests.support.training_code.own_code import forgotten

pytestmark = pytest.mark.usefixtures("untracked")

INLINE = ("--driver", "inline")
TASK_CODE = """
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
def run_fresh(haltsweep, tmp_path):
    """Return a function that runs a command in a folder whose task draws new data in each build."""
    (tmp_path / "tosses").mkdir()
    (tmp_path / "tosses/__init__.py").touch()
    (tmp_path / "tosses/coin.py").write_text(TASK_CODE)
    (tmp_path / "tossed.yaml").write_text(SPEC)

    def run_command(*arguments):
        with forgotten(tmp_path):
            return haltsweep(*arguments)

    return run_command


def test_changed_data_are_refused_or_reported(run_fresh, tmp_path):
    assert run_fresh("launch", "tossed.yaml", *INLINE).code == 0
    arguments = ("extend", "tossed", "--seeds", "[4]", *INLINE)
    data_folder = tmp_path / "data"
    data_folder.rename(tmp_path / "first-data")
    plan_before = (tmp_path / "runs/tossed/plan.json").read_bytes()
    result = run_fresh(*arguments)
    assert result.code == 2
    assert (tmp_path / "runs/tossed/plan.json").read_bytes() == plan_before
    for split in ("test", "train", "valid"):
        assert f"tosses.coin/{split} " in result.err
    shutil.rmtree(data_folder)
    (tmp_path / "first-data").rename(data_folder)
    assert run_fresh(*arguments).code == 0, "earlier trials read these data"
    assert read.report("tossed").data_versions == ""
    shutil.rmtree(data_folder)
    result = run_fresh("extend", "tossed", "--seeds", "[5]", "--changed-code", *INLINE)
    assert result.code == 0, result.err
    disclosure = read.report("tossed").data_versions
    assert re.search(" 2 .*tosses.coin/test ", disclosure)
    assert disclosure[:40] in result.err
    assert f"**{disclosure}**" in (tmp_path / "runs/tossed/report/report.md").read_text()


@pytest.mark.parametrize(
    ("first_digests", "second_digests", "is_change"),
    [
        ({"a/test": "1"}, {"a/test": "2"}, True),
        ({"a/test": "1"}, {"a/test": "1, 2"}, False),
        ({"a/test": "1, 3"}, {"a/test": "1, 2"}, True),
        ({"a/test": "1"}, {}, False),
    ],
)
def test_additional_splits_do_not_count_as_changed_data(first_digests, second_digests, is_change):
    trial = next(record for record in make_study().records if record.outcome is not None)
    records = [replace(trial, provenance={"data": digests}) for digests in (first_digests, second_digests)]
    assert bool(data_versions(records)) == is_change
