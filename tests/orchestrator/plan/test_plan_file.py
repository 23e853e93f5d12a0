"""All faults of the plan of a spec file are reported at once."""

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.planner import plan_file

SPEC = """\
name: both
question: Are all reported?
baseline:
  task: {name: listops}
  model: {name: universal, widht: 16, heads: 2}
  train: {steps: 4}
arms:
  minus-gate: {why: plain block, set: {model.gat: false}}
confirm: {seeds: [1, 2]}
"""


def test_faulty_baseline_does_not_hide_faults_of_arms(tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC)
    with pytest.raises(PlanError) as caught:
        plan_file(file)
    assert [(fault.line, fault.path) for fault in caught.value.faults] == [
        (5, "baseline.model.widht"),
        (8, "arms.minus-gate.set.model.gat"),
    ]
