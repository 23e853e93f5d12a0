"""Custom trainables report digests of their test data; arms with different test data get no verdict."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.support.training_code.own_code import forgotten

TRAINING_CODE = """
import hashlib

def train(settings, trial):
    digest = hashlib.sha256(str(settings["examples"]).encode()).hexdigest()
    value = 0.5 + 0.1 * settings["wide"] + 0.1 * (settings["examples"] > 10) + 0.001 * (trial.seed * 7 % 5)
    trial.report(1, {"valid/accuracy": value, "test/accuracy": value, "test/digest": digest})
"""
SPEC = """\
name: tests
question: Does width help?
trainable: digesting_job:train
baseline: {examples: 10, wide: false}
arms:
  wide: {why: wider, set: {wide: true}}
  more: {why: more examples, set: {examples: 20}}
confirm: {seeds: [1, 2, 3, 4, 5], splits: [test]}
answer: {metric: test/accuracy}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("untracked")
def test_arm_with_different_test_data_gets_no_verdict(haltsweep, tmp_path):
    (tmp_path / "digesting_job.py").write_text(TRAINING_CODE)
    (tmp_path / "spec.yaml").write_text(SPEC)
    with forgotten(tmp_path):
        result = haltsweep("launch", "spec.yaml", "--driver", "inline")
    assert result.code == 0, result
    report = json.loads(Path("runs/tests/report/report.json").read_text())
    assert {verdict["arm"]: verdict["withheld"] for verdict in report["verdicts"]} == {
        "wide": "",
        "more": "different-test-sets",
    }
    digests = {attribute["test/digest"] for attribute in report["attributes"].values()}
    assert digests == {hashlib.sha256(str(size).encode()).hexdigest() for size in (10, 20)}
    assert report["interval_scope"]["unchecked_tests"] == []
    assert any(line.startswith("not tested: more: different test sets") for line in result.out.splitlines())
