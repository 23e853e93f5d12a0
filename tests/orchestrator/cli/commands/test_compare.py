"""`haltsweep compare`: output for real sweeps."""

import json
from pathlib import Path

import pytest

from tests.support.processes.commands import TINY
from tests.support.training_code.own_code import forgotten

pytestmark = pytest.mark.usefixtures("untracked")

READING_CODE = """\
from pathlib import Path


def train(settings, trial):
    trial.report(1, {"test/accuracy": trial.seed / 100, "test/digest": Path("digest.txt").read_text()})
"""
SPEC = """\
name: reading
question: What does it read?
trainable: reading:train
baseline: {width: 1}
confirm: {seeds: [1, 2], splits: [test]}
"""
INLINE = ("search=null", "--driver", "inline")


@pytest.mark.slow
def test_compare_lists_the_differences_of_two_sweeps(haltsweep):
    Path("tiny.yaml").write_text(TINY)
    assert haltsweep("launch", "tiny.yaml", *INLINE).code == 0
    overrides = ("name=other", "baseline.task.data_seed=9", "arms.minus-gate.why=none")
    assert haltsweep("launch", "tiny.yaml", *overrides, "confirm.seeds=[101]", *INLINE).code == 0
    same_result = haltsweep("compare", "tiny", "tiny")
    assert same_result.code == 0, same_result
    assert "paired, 2 seeds" in same_result.out
    (comparison,) = json.loads(haltsweep("compare", "tiny", "tiny", "--json").out)
    assert (comparison["spec"], comparison["code"], comparison["data"]) == ([], [], [])
    result = haltsweep("compare", "tiny", "other")
    assert result.code == 0, result
    assert "  confirm.seeds: [101, 102] -> [101]\n" in result.out
    (comparison,) = json.loads(haltsweep("compare", "tiny", "other", "--json").out)
    assert comparison["arms"] == []
    assert [name for name, *_ in comparison["data"]] == ["listops/train", "listops/valid", "listops/near-iid"]


def test_compare_computes_no_difference_for_different_test_examples(haltsweep, tmp_path):
    Path("reading.py").write_text(READING_CODE)
    Path("reading.yaml").write_text(SPEC)
    with forgotten(tmp_path):
        for name, digest in (("first", "a" * 32), ("second", "b" * 32)):
            Path("digest.txt").write_text(digest)
            launch_result = haltsweep("launch", "reading.yaml", f"name={name}", "--driver", "inline")
            assert launch_result.code == 0, launch_result
    (comparison,) = json.loads(haltsweep("compare", "first", "second", "--json").out)
    assert comparison["arms"][0]["difference"] is None
    assert "bbbbbbbb" in comparison["arms"][0]["different_tests"]
