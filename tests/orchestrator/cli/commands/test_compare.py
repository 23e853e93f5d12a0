"""`haltsweep compare`: output for real sweeps."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.cli.commands import compare
from tests.support.processes.commands import TINY
from tests.support.training_code.own_code import forgotten

pytestmark = pytest.mark.usefixtures("untracked")

READING_CODE = """\
from pathlib import Path


def train(settings, trial):
    trial.report(1, {"test/accuracy": float(Path("values.txt").read_text()) + trial.seed / 100})
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
    assert "spec: no difference\ncode and machine: no difference\ndata: no difference\n" in same_result.out
    result = haltsweep("compare", "tiny", "other")
    assert result.code == 0, result
    assert "no arm of tiny" in result.out
    assert ": baseline, minus-gate\n" in result.out
    assert "only in" not in result.out
    assert "Each interval" not in result.out, "there is none"
    assert "  confirm.seeds: [101, 102] -> [101]\n" in result.out
    (comparison,) = json.loads(haltsweep("compare", "tiny", "other", "--json").out)
    assert [name for name, *_ in comparison["data"]] == ["listops/train", "listops/valid", "listops/near-iid"]
    assert all(
        len(first_digest) > 20 and len(second_digest) > 20
        for _, first_digest, second_digest in comparison["data"]
    )


def test_compare_does_not_call_unstored_data_equal(haltsweep, tmp_path):
    """Custom training code may read another file in each run."""
    Path("reading.py").write_text(READING_CODE)
    Path("values.txt").write_text("0.5")
    Path("reading.yaml").write_text(SPEC)
    with forgotten(tmp_path):
        first_launch = haltsweep("launch", "reading.yaml", "--driver", "inline")
        Path("values.txt").write_text("0.7")
        second_launch = haltsweep("launch", "reading.yaml", "name=other", "--driver", "inline")
    assert (first_launch.code, second_launch.code) == (0, 0), (first_launch, second_launch)
    result = haltsweep("compare", "reading", "other")
    assert result.code == 0, result
    assert "code and machine: no difference\ndata: unknown" in result.out
    assert json.loads(haltsweep("compare", "reading", "other", "--json").out)[0]["data_known"] is False


def test_compare_computes_no_difference_for_different_test_examples(haltsweep, tmp_path):
    code_with_digest = READING_CODE.replace(
        "/ 100})", '/ 100, "test/digest": Path("digest.txt").read_text()})'
    )
    Path("reading.py").write_text(code_with_digest)
    Path("values.txt").write_text("0.5")
    Path("reading.yaml").write_text(SPEC)
    with forgotten(tmp_path):
        for name, digest in (("first", "a" * 32), ("second", "b" * 32)):
            Path("digest.txt").write_text(digest)
            launch_result = haltsweep("launch", "reading.yaml", f"name={name}", "--driver", "inline")
            assert launch_result.code == 0, launch_result
    result = haltsweep("compare", "first", "second")
    assert result.code == 0, result
    assert "baseline of second" in result.out
    assert "Each interval" not in result.out
    (comparison,) = json.loads(haltsweep("compare", "first", "second", "--json").out)
    assert comparison["arms"][0]["difference"] is None
    assert "bbbbbbbb" in comparison["arms"][0]["different_tests"]


def test_arm_in_both_sweeps_is_not_listed_as_missing():
    comparison = SimpleNamespace(first="one", second="two", alone=(("base", "a"), ("base", "b")))
    assert list(compare._unmatched_arms(comparison)) == [
        "of one name and different content: base",
        "only in one: a",
        "only in two: b",
    ]


def test_compare_refuses_a_single_sweep(haltsweep):
    result = haltsweep("compare", "tiny")
    assert result.code == 2
