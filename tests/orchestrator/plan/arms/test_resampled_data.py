"""`confirm.resample_data`: which specs can have it, and what it changes in a plan."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.planner import plan_file
from orchestrator.plan.serialise import from_json, to_json
from tests.orchestrator.plan.small import CONFIRM, full, spec
from tests.support.specs.planned import plan
from tests.support.training_code.own_code import BONUS, forgotten

RESAMPLED = {**CONFIRM, "resample_data": True}


def faults(asked: Any) -> list[str]:
    with pytest.raises(PlanError) as raised:
        plan(asked)
    return [fault.path for fault in raised.value.faults]


def test_confirm_and_posthoc_trials_are_other_ones_and_search_trials_are_not() -> None:
    once, drawn = plan(full()), plan(full(confirm=RESAMPLED))
    before, after = ({(trial.phase, trial.trial_id) for trial in made.trials} for made in (once, drawn))
    assert {phase for phase, _ in before & after} == {"search"}
    assert {phase for phase, _ in before ^ after} == {"confirm", "posthoc"}
    assert from_json(to_json(drawn)) == drawn
    assert to_json(plan(full(confirm={**CONFIRM, "resample_data": False}))) == to_json(once)


@pytest.mark.parametrize(
    ("task", "split"),
    [
        ({"name": "lra_text", "folder": "files"}, "test"),
        ({"name": "logical_inference", "folder": "files"}, "test-7"),
    ],
)
def test_a_task_whose_data_are_files_cannot_be_drawn_anew(task: dict[str, Any], split: str) -> None:
    model = {"name": "transformer", "width": 16, "heads": 2, "layers": 1}
    asked = spec(
        baseline={"task": task, "model": model, "train": {"steps": 1, "batch_size": 1}},
        confirm={**RESAMPLED, "splits": [split]},
    )
    assert "confirm.resample_data" in faults(asked)


def test_own_code_draws_its_data_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drawing_own.py").write_text(BONUS)
    monkeypatch.syspath_prepend(tmp_path)
    spec_file = tmp_path / "own.yaml"
    spec_file.write_text(
        "name: own\nquestion: Does it?\ntrainable: drawing_own:train\nbaseline: {bonus: 0.0}\n"
        "arms: {more: {why: a bonus, set: {bonus: 0.1}}}\n"
        "confirm: {seeds: 3, splits: [test], resample_data: true}\n"
    )
    with forgotten(tmp_path), pytest.raises(PlanError) as raised:
        plan_file(spec_file)
    assert [(fault.path, fault.line) for fault in raised.value.faults] == [("confirm.resample_data", 6)]
