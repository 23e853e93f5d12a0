"""`haltsweep compare`: what it prints of real sweeps."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.cli.commands import compare
from tests.support.processes.commands import TINY
from tests.support.training_code.own_code import forgotten

pytestmark = pytest.mark.usefixtures("untracked")

READING = """\
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
def test_two_sweeps_and_what_differs(haltsweep):
    Path("tiny.yaml").write_text(TINY)
    assert haltsweep("launch", "tiny.yaml", *INLINE).code == 0
    other = ("name=other", "baseline.task.data_seed=9", "arms.minus-gate.why=none")
    assert haltsweep("launch", "tiny.yaml", *other, "confirm.seeds=[101]", *INLINE).code == 0
    same = haltsweep("compare", "tiny", "tiny")
    assert same.code == 0, same
    assert "paired, 2 seeds" in same.out
    assert "spec: no difference\ncode and machine: no difference\ndata: no difference\n" in same.out
    result = haltsweep("compare", "tiny", "other")
    assert result.code == 0, result
    assert "no arm of tiny was confirmed with the same content in other" in result.out
    assert "of one name and different content: baseline, minus-gate\n" in result.out
    assert "only in" not in result.out
    assert "Each interval" not in result.out, "there is none"
    assert "  confirm.seeds: [101, 102] -> [101]\n" in result.out
    (found,) = json.loads(haltsweep("compare", "tiny", "other", "--json").out)
    assert [what for what, *_ in found["data"]] == ["listops/train", "listops/valid", "listops/near-iid"]
    assert all(len(before) > 20 and len(after) > 20 for _, before, after in found["data"])


def test_of_data_that_haltsweep_does_not_store_no_sameness_is_claimed(haltsweep, tmp_path):
    """What own training code reads may be another file each time."""
    Path("reading.py").write_text(READING)
    Path("values.txt").write_text("0.5")
    Path("reading.yaml").write_text(SPEC)
    with forgotten(tmp_path):
        first = haltsweep("launch", "reading.yaml", "--driver", "inline")
        Path("values.txt").write_text("0.7")
        second = haltsweep("launch", "reading.yaml", "name=other", "--driver", "inline")
    assert (first.code, second.code) == (0, 0), (first, second)
    result = haltsweep("compare", "reading", "other")
    assert result.code == 0, result
    assert "code and machine: no difference\ndata: unknown" in result.out
    assert json.loads(haltsweep("compare", "reading", "other", "--json").out)[0]["data_known"] is False


def test_sweeps_with_other_test_examples_have_no_difference(haltsweep, tmp_path):
    measured = READING.replace("/ 100})", '/ 100, "test/digest": Path("digest.txt").read_text()})')
    Path("reading.py").write_text(measured)
    Path("values.txt").write_text("0.5")
    Path("reading.yaml").write_text(SPEC)
    with forgotten(tmp_path):
        for name, digest in (("first", "a" * 32), ("second", "b" * 32)):
            Path("digest.txt").write_text(digest)
            launched = haltsweep("launch", "reading.yaml", f"name={name}", "--driver", "inline")
            assert launched.code == 0, launched
    result = haltsweep("compare", "first", "second")
    assert result.code == 0, result
    assert "no difference in test/accuracy: baseline of second was measured on other examples" in result.out
    assert "Each interval" not in result.out
    (found,) = json.loads(haltsweep("compare", "first", "second", "--json").out)
    assert found["arms"][0]["difference"] is None
    assert "bbbbbbbb" in found["arms"][0]["different_tests"]


def test_a_name_in_both_is_not_said_to_be_in_one_alone():
    found = SimpleNamespace(first="one", second="two", alone=(("base", "a"), ("base", "b")))
    assert list(compare._unmatched_arms(found)) == [
        "of one name and different content: base",
        "only in one: a",
        "only in two: b",
    ]


def test_one_sweep_is_none_to_compare(haltsweep):
    result = haltsweep("compare", "tiny")
    assert result.code == 2
    assert "at least two sweeps are needed, got 1" in result.err
