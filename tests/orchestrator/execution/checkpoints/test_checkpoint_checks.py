"""Checkpoints to be re-evaluated are checked before an extension; missing or damaged checkpoints are listed
by trial."""

from dataclasses import replace

import pytest

from orchestrator.errors import InputError
from orchestrator.execution.checkpoints import worker_checkpoints
from orchestrator.execution.checkpoints.checkpoint_checks import require_checkpoints
from orchestrator.identity import SweepFolder
from orchestrator.ledger.fold import records
from orchestrator.plan.extension.extending import extend_plan
from orchestrator.plan.types import Extension
from orchestrator.trials import OutcomeKind
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import history


@pytest.fixture
def extended_sweep(tmp_path):
    """A finished sweep whose extension re-evaluates one more split; each confirm trial has a checkpoint."""
    old_plan = make_plan(1, seeds=(1, 2, 3, 4))
    known_records = records(history(old_plan), old_plan)
    new_plan = replace(old_plan, confirm=replace(old_plan.confirm, splits=("test", "long")))
    extension = Extension(1.0, "haltsweep extend", "", ("confirm.splits",), (), (), {})
    plan = extend_plan(old_plan, new_plan, {record_.trial_id for record_ in known_records}, extension)
    folder = SweepFolder(tmp_path / "synthetic")
    confirmed = [record_ for record_ in known_records if record_.phase == "confirm"]
    for trial_record in confirmed:
        worker_checkpoints.write(
            folder.checkpoint(trial_record.trial_id),
            trial_record.last,
            lambda place: (place / "state").write_text("x" * 50),
        )
    return folder, plan, known_records, confirmed


def test_older_damaged_and_missing_checkpoints_are_listed(extended_sweep):
    folder, plan, known_records, confirmed = extended_sweep
    require_checkpoints(folder, None, plan, known_records)
    older, damaged, missing = confirmed[:3]
    (newest,) = worker_checkpoints.list_checkpoints(folder.checkpoint(older.trial_id))
    newest.folder.rename(newest.folder.with_name(newest.folder.name.replace("30", "20")))
    (newest,) = worker_checkpoints.list_checkpoints(folder.checkpoint(damaged.trial_id))
    (newest.state / "state").write_text("y" * 50)
    folder.checkpoint(missing.trial_id).rename(folder.root / "away")
    with pytest.raises(InputError, match="synthetic") as error:
        require_checkpoints(folder, None, plan, known_records)
    _, *faults, _ = str(error.value).splitlines()
    for trial_record, fault in zip((older, damaged, missing), faults, strict=True):
        assert trial_record.trial_id in fault
    failed = [
        replace(trial_record, outcome=OutcomeKind.DIVERGED)
        if trial_record in (older, damaged, missing)
        else trial_record
        for trial_record in known_records
    ]
    require_checkpoints(folder, None, plan, failed)


def test_reevaluated_trial_needs_no_checkpoint(extended_sweep):
    folder, plan, known_records, confirmed = extended_sweep
    for trial_record in confirmed:
        folder.checkpoint(trial_record.trial_id).rename(folder.root / trial_record.trial_id)
    reevaluations = [
        replace(confirmed[0], trial_id=trial.trial_id, phase="posthoc")
        for trial in plan.trials
        if trial.late_splits
    ]
    assert len(reevaluations) == len(confirmed)
    require_checkpoints(folder, None, plan, [*known_records, *reevaluations])
