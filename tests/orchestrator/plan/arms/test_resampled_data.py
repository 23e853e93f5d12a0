"""`confirm.resample_data` changes confirm and posthoc trials, and is refused for data that are files."""

from pathlib import Path

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.planner import plan_file
from orchestrator.plan.serialise import from_json, to_json
from tests.orchestrator.plan.small_specs import CONFIRM, make_full_spec, make_spec
from tests.support.specs.planned import plan
from tests.support.training_code.own_code import BONUS, forgotten

RESAMPLED = {**CONFIRM, "resample_data": True}


def test_resampling_changes_confirm_and_posthoc_trials_but_no_search_trials() -> None:
    fixed_plan, resampled_plan = plan(make_full_spec()), plan(make_full_spec(confirm=RESAMPLED))
    fixed_trials, resampled_trials = (
        {(trial.phase, trial.trial_id) for trial in sweep_plan.trials}
        for sweep_plan in (fixed_plan, resampled_plan)
    )
    assert {phase for phase, _ in fixed_trials & resampled_trials} == {"search"}
    assert {phase for phase, _ in fixed_trials ^ resampled_trials} == {"confirm", "posthoc"}
    assert from_json(to_json(resampled_plan)) == resampled_plan


def test_task_with_data_files_cannot_be_resampled() -> None:
    file_spec = make_spec(
        baseline={
            "task": {"name": "lra_text", "folder": "files"},
            "model": {"name": "transformer", "width": 16, "heads": 2, "layers": 1},
            "train": {"steps": 1, "batch_size": 1},
        },
        confirm={**RESAMPLED, "splits": ["test"]},
    )
    with pytest.raises(PlanError) as raised:
        plan(file_spec)
    assert "confirm.resample_data" in [fault.path for fault in raised.value.faults]


def test_custom_code_cannot_be_resampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
