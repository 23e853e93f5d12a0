"""Check the checkpoints that an extended sweep will re-evaluate, before the extension writes anything."""

from collections.abc import Sequence

from orchestrator.errors import InputError
from orchestrator.execution.checkpoints.checkpoint_stores import CheckpointStore, make_store
from orchestrator.execution.checkpoints.worker_checkpoints import CheckpointDamaged
from orchestrator.identity import SweepFolder
from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, Record
from search_spaces.wording import amount

MAX_LISTED_TRIALS = 8
"""Maximum number of trials listed by name in a message, which counts the remaining ones."""


def require_checkpoints(folder: SweepFolder, uri: str | None, plan: Plan, records: Sequence[Record]) -> None:
    """Check the checkpoints of finished confirm trials that trials for added splits will re-evaluate.

    Args:
        folder: Folder of the sweep.
        uri: URI of the checkpoint store; None for the folder of the sweep.
        plan: The extended plan.
        records: Trials in the ledger. Running confirm trials will still write their checkpoints.

    Raises:
        InputError: A checkpoint is missing or damaged.
    """
    known_ids = {record.trial_id for record in records}
    new = [trial for trial in plan.trials if trial.late_splits and trial.trial_id not in known_ids]
    late = {(trial.arm, trial.rank, trial.seed) for trial in new}
    store, faults = make_store(uri), list[str]()
    for record in records:
        is_source = (record.phase, record.outcome) == ("confirm", OutcomeKind.FINISHED)
        if is_source and (record.arm, record.rank, record.seed) in late:
            assert record.last is not None, "a finished trial was measured"
            if fault := checkpoint_fault(store, folder, record.trial_id, record.last.step):
                faults.append(f"  {record.place} ({record.trial_id}, seed {record.seed}): {fault}")
    if faults:
        num_unlisted = len(faults) - MAX_LISTED_TRIALS
        remainder = [f"  and {amount(num_unlisted, 'trial')} more"] if num_unlisted > 0 else []
        missing_text = (
            f"cannot add splits to {plan.name}: they are evaluated on the last checkpoint of every finished "
            f"confirm trial, and {amount(len(faults), 'checkpoint')} cannot be read:"
        )
        remedy = "Put back what is missing, or launch the spec with these splits under another name."
        raise InputError("\n".join([missing_text, *faults[:MAX_LISTED_TRIALS], *remainder, remedy]))


def checkpoint_fault(store: CheckpointStore, folder: SweepFolder, trial_id: str, step: int) -> str:
    """Return a description of the fault of a trial's checkpoint at `step`; empty if it is readable."""
    for checkpoint in store.complete(folder.checkpoint(trial_id)):
        if checkpoint.step == step:
            try:
                checkpoint.measurement()
            except CheckpointDamaged as error:
                return str(error)
            return ""
    return f"no checkpoint of step {step}"
