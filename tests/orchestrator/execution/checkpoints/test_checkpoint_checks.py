"""Checkpoints that are to be read again are looked at first; what is missing or damaged is told by trial."""

from dataclasses import replace

import pytest

from orchestrator.errors import InputError
from orchestrator.execution.checkpoints import worker_checkpoints
from orchestrator.execution.checkpoints.checkpoint_checks import MOST_NAMED, require_checkpoints
from orchestrator.identity import SweepFolder
from orchestrator.ledger.fold import records
from orchestrator.plan.extension.extending import extend_plan
from orchestrator.plan.types import Extension
from orchestrator.trials import OutcomeKind
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import history

SEEDS = tuple(range(1, MOST_NAMED + 3))


@pytest.fixture
def sweep(tmp_path):
    """A finished sweep that is to read one split more, with a checkpoint of every confirm trial."""
    old = make_plan(1, seeds=SEEDS)
    known = records(history(old), old)
    new = replace(old, confirm=replace(old.confirm, splits=("test", "long")))
    added = Extension(1.0, "haltsweep extend", "", ("confirm.splits",), (), (), {})
    plan = extend_plan(old, new, {each.trial_id for each in known}, added)
    folder = SweepFolder(tmp_path / "synthetic")
    confirmed = [each for each in known if each.phase == "confirm"]
    for each in confirmed:
        worker_checkpoints.write(
            folder.checkpoint(each.trial_id), each.last, lambda place: (place / "state").write_text("x" * 50)
        )
    return folder, plan, known, confirmed


def test_all_are_there(sweep):
    folder, plan, known, _ = sweep
    require_checkpoints(folder, None, plan, known)


def test_one_of_an_older_step_one_that_is_damaged_and_one_that_is_gone(sweep):
    folder, plan, known, confirmed = sweep
    older, damaged, gone = confirmed[:3]
    (newest,) = worker_checkpoints.list_checkpoints(folder.checkpoint(older.trial_id))
    newest.folder.rename(newest.folder.with_name(newest.folder.name.replace("30", "20")))
    (newest,) = worker_checkpoints.list_checkpoints(folder.checkpoint(damaged.trial_id))
    (newest.state / "state").write_text("y" * 50)
    folder.checkpoint(gone.trial_id).rename(folder.root / "away")
    with pytest.raises(InputError, match="synthetic cannot be extended by splits") as raised:
        require_checkpoints(folder, None, plan, known)
    first, *faults, last = str(raised.value).splitlines()
    assert first.endswith("and 3 trials cannot be read:")
    for each, fault in zip((older, damaged, gone), faults, strict=True):
        assert fault.startswith(f"  arm-0/confirm/{each.number} ({each.trial_id}, seed {each.seed}): ")
    assert faults[0].endswith("no checkpoint of step 30")
    assert "state" in faults[1]
    assert faults[2].endswith("no checkpoint of step 30")
    assert last.startswith("Put back what is missing")
    failed = [
        replace(each, outcome=OutcomeKind.DIVERGED) if each in (older, damaged, gone) else each
        for each in known
    ]
    require_checkpoints(folder, None, plan, failed)


def test_what_was_read_already_needs_no_checkpoint(sweep):
    folder, plan, known, confirmed = sweep
    for each in confirmed:
        folder.checkpoint(each.trial_id).rename(folder.root / each.trial_id)
    read = [
        replace(confirmed[0], trial_id=each.trial_id, phase="posthoc")
        for each in plan.trials
        if each.late_splits
    ]
    assert len(read) == len(confirmed)
    require_checkpoints(folder, None, plan, [*known, *read])


def test_of_many_some_are_named(sweep):
    folder, plan, known, confirmed = sweep
    for each in confirmed:
        folder.checkpoint(each.trial_id).rename(folder.root / each.trial_id)
    with pytest.raises(InputError, match="and 2 trials more"):
        require_checkpoints(folder, None, plan, known)
