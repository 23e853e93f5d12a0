"""A sweep of all combinations of two parts, from the spec to what its report says each part does."""

import json
from pathlib import Path

import pytest

from tests.support.processes.in_process import Run

pytestmark = pytest.mark.usefixtures("untracked")

TRAINING_CODE = '''"""Accuracy with a planted effect of the gate, and of gate and halt together."""

import random


def run(settings, trial):
    noise = random.Random(trial.seed_of("noise", settings["gate"], settings["halt"])).gauss(0, 0.002)
    gate, halt = (1 if settings[name] else -1 for name in ("gate", "halt"))
    value = 0.7 + 0.03 * gate + 0.01 * gate * halt + noise
    trial.report(1, {f"{split}/accuracy": value for split in ("valid", *trial.splits)})
'''
SPEC = """
name: parts
question: Which part does it?
trainable: parts_code:run
baseline: {gate: true, halt: true}
components:
  gate: {why: plain block, set: {gate: false}}
  halt: {why: always all layers, set: {halt: false}}
combine: {of: [gate, halt], as: all}
confirm: {seeds: [1, 2, 3, 4, 5, 6], splits: [test]}
answer: {metric: test/accuracy, margin: 0.01}
resources: {cpus: 1}
"""


@pytest.mark.slow
def test_report_estimates_the_effect_of_each_part(haltsweep: Run, tmp_path: Path) -> None:
    (tmp_path / "parts_code.py").write_text(TRAINING_CODE)
    (tmp_path / "parts.yaml").write_text(SPEC)
    launched = haltsweep("launch", "parts.yaml", "--driver", "inline")
    assert launched.code == 0, launched.err
    report = haltsweep("report", "parts", "--json")
    effects = {tuple(effect["components"]): effect for effect in json.loads(report.out)["factorial"]}
    for term, value in {("gate",): 0.06, ("halt",): 0.0, ("gate", "halt"): 0.02}.items():
        assert effects[term]["estimate"]["mean"] == pytest.approx(value, abs=0.004)
        assert (effects[term]["p"] <= 0.05) == (value != 0)
    assert "gate x halt" in haltsweep("report", "parts").out
