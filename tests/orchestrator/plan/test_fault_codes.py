"""Every kind of fault has a stable code, the path of its field and the line of that field."""

from pathlib import Path

import pytest

from orchestrator.errors import FaultCode, PlanError, SpecError
from orchestrator.spec.load import read_spec
from tests.support.specs.planned import plan

SPEC = """\
name: small
question: Does it plan?
baseline:
  task: {name: listops}
  model: {name: universal, width: 16, heads: 2, max_layers: 6}
  train: {steps: 100, batch_size: 4, report_every: 1}
arms:
  minus-gate: {why: plain feed-forward block, set: {model.gate: false}}
search:
  also:
    train.lr: {float: [1.0e-4, 2.0e-3], log: true}
  trials_per_arm: 3
  objectives: [{metric: valid/accuracy, goal: max}]
confirm: {seeds: [101, 102, 103], splits: [near-iid]}
answer: {metric: near-iid/depth}
"""


def faults_of(file: Path) -> list[tuple[str, str, int | None]]:
    """Return code, path and line of each fault of the spec in `file`."""
    with pytest.raises((SpecError, PlanError)) as caught:
        plan(read_spec(file))
    return [(fault.code, fault.path, fault.line) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("before", "after", "code", "path", "line"),
    [
        ("name: small", "name: [", FaultCode.INVALID_YAML, "", 2),
        ("name: small", "name: small\nname: other", FaultCode.DUPLICATE_KEY, "name", 2),
        ("question: Does it plan?\n", "", FaultCode.MISSING_FIELD, "question", 1),
        ("question:", "questoin: x\nquestion:", FaultCode.UNKNOWN_FIELD, "questoin", 2),
        ("heads: 2", "heads: two", FaultCode.INVALID_VALUE, "baseline.model.heads", 5),
        ("steps: 100", "steps: 1.0e+18", FaultCode.OVERSIZED_VALUE, "baseline.train.steps", 6),
        ("name: universal", "name: univresal", FaultCode.UNKNOWN_NAME, "baseline.model.name", 5),
        ("Does it plan?", "https://ann:secret@host", FaultCode.SECRET, "question", 2),
        (
            "model.gate: false",
            "model.gate: true",
            FaultCode.ARM_HAS_NO_EFFECT,
            "arms.minus-gate.set.model.gate",
            8,
        ),
        (
            "train.lr: {float: [1.0e-4, 2.0e-3], log: true}",
            "train.beam_size: {int: [1, 4]}",
            FaultCode.PARAM_HAS_NO_EFFECT,
            "search.also.train.beam_size",
            11,
        ),
        ("[near-iid]", "[near-iid, near-idd]", FaultCode.UNKNOWN_NAME, "confirm.splits[1]", 14),
        ("[near-iid]", "[near-iid], cross: true, best: 2", FaultCode.CONFLICTING_FIELDS, "confirm.cross", 14),
        ("max_layers: 6}", "max_layers: 6, halt: null}", FaultCode.METRIC_DOES_NOT_VARY, "answer.metric", 15),
        (
            "model.gate: false",
            "task.data_seed: 3",
            FaultCode.DIFFERENT_TEST_DATA,
            "arms.minus-gate.set.task.data_seed",
            8,
        ),
    ],
)
def test_fault_has_code_path_and_line(
    before: str, after: str, code: FaultCode, path: str, line: int, tmp_path: Path
) -> None:
    assert SPEC.count(before) == 1
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC.replace(before, after))
    assert (code, path, line) in faults_of(file)


def test_missing_file_is_unreadable(tmp_path: Path) -> None:
    assert faults_of(tmp_path / "absent.yaml") == [(FaultCode.UNREADABLE_FILE, "", None)]


def test_override_of_an_unknown_field_is_invalid(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC)
    with pytest.raises(SpecError) as caught:
        read_spec(file, ["serach.trials_per_arm=2"])
    assert [fault.code for fault in caught.value.faults] == [FaultCode.INVALID_OVERRIDE]
