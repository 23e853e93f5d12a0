"""Open a launched sweep for reading: its plan, ledger and records, without claiming a lease."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.cli.locations import command, find_sweep
from orchestrator.conductor.budget import budget_end, error_end
from orchestrator.conductor.overview import EndedTrialTotals, Overview
from orchestrator.errors import InputError, StoreError
from orchestrator.execution.sweep.launch_folder import read_setup
from orchestrator.files.sqlite_files import why_no_database
from orchestrator.garbage import garbage_collection_off
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.fold import MEASUREMENT_KINDS, measurements, records
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import read_outline, read_plan
from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, Phase, Record
from trainables.protocol import Measurement

MeasuredRecords = tuple[list[Record], dict[str, list[Measurement]]]


@dataclass(frozen=True, slots=True)
class StoredSweep:
    """An opened sweep on disk."""

    folder: SweepFolder
    plan: Plan
    """Plan of the sweep, without trials if it was opened as an outline."""
    planned: Mapping[tuple[str, Phase], int]
    """Number of planned trials by arm and phase."""
    ledger: Ledger
    ledger_url: str

    def records(self) -> list[Record]:
        """Return one record per trial in the ledger."""
        return records(self.ledger.events(), self.plan)

    def measured_records(self) -> MeasuredRecords:
        """Return all records, and every measurement of confirm trials by trial id, in one pass.

        The `best` value of other trials is from their newest measurements unless earlier reports count too.
        """
        confirmed = {trial.trial_id for trial in self.plan.trials if trial.phase == "confirm"}
        with garbage_collection_off():
            if not self._counts_earlier_reports:
                trial_records, measured = fold_measured(self.ledger.last_reports(confirmed), self.plan)
                if not self._lacks_objective(trial_records):
                    return trial_records, measured
            return fold_measured(self.ledger.events(), self.plan)

    def newest_records(self) -> list[Record]:
        """Return all records faster than `records`, with the last measurement as `best`.

        All measurements are read if the last measurement of a finished search trial lacks an objective, or if
        earlier reports count too.
        """
        newest = [] if self._counts_earlier_reports else records(self.ledger.newest_events(), self.plan)
        return self.records() if self._counts_earlier_reports or self._lacks_objective(newest) else newest

    def overview(self) -> Overview:
        """Return the data for `status`; trials that had ended at the newest snapshot are not read again."""
        snapshot = self.ledger.snapshot()
        totals = EndedTrialTotals.from_snapshot(snapshot) if snapshot is not None else None
        if snapshot is not None and totals is not None:
            every_report, seq = self._counts_earlier_reports, snapshot.seq
            newer = self.ledger.newest_events(
                after_seq=seq, first_seqs=totals.open_trials, every_report=every_report
            )
            events = [*newer]
            if not any(event.kind is EventKind.RETRIED and (event.seq or 0) > seq for event in events):
                newest = records(events, self.plan)
                if not self._lacks_objective(newest):
                    return Overview.from_records(self.plan, self.planned, newest, totals)
        return Overview.from_records(self.plan, self.planned, self.newest_records())

    @property
    def _counts_earlier_reports(self) -> bool:
        return any(objective.scope != "last" for objective in self.plan.objectives)

    def _lacks_objective(self, trial_records: Iterable[Record]) -> bool:
        """Return whether a finished search trial lacks an objective in the reports that were read."""
        metrics = [objective.metric for objective in self.plan.objectives]
        finished_records = (record for record in trial_records if record.outcome is OutcomeKind.FINISHED)
        search_records = (record for record in finished_records if record.phase == "search")
        return bool(metrics) and not all(record.judged_by(metrics) for record in search_records)

    def exhausted_budget(self) -> str:
        """Return the exhausted budget if it ended the sweep; otherwise an empty string."""
        return budget_end(self._last_event(), self.plan)

    def stopping_error(self) -> str:
        """Return the error that stopped the sweep; empty if the sweep runs or ended otherwise."""
        return error_end(self._last_event())

    def _last_event(self) -> Event | None:
        previous_seq = max(0, self.ledger.last_seq() - 1)
        return next(iter(self.ledger.events(after_seq=previous_seq)), None)


def fold_measured(events: Iterable[Event], plan: Plan) -> MeasuredRecords:
    """Return all records, and every measurement of confirm trials by trial id, in one pass over `events`.

    Only the events that are needed for curves are retained in memory.
    """
    confirmed = {trial.trial_id for trial in plan.trials if trial.phase == "confirm"}
    measured_events: list[Event] = []

    def collect_measurements() -> Iterator[Event]:
        for event in events:
            if event.kind in MEASUREMENT_KINDS and event.trial_id in confirmed:
                measured_events.append(event)
            yield event

    return records(collect_measurements(), plan), measurements(measured_events)


def launched_sweep(
    name: str, runs: Path, *, outline: bool = False
) -> tuple[SweepFolder, Plan, Mapping[tuple[str, Phase], int]]:
    """Return folder and plan of the sweep called `name`, and the number of its trials by arm and phase.

    Args:
        name: Name or folder of the sweep.
        runs: Folder of sweeps.
        outline: Whether to return the plan without its trials.

    Raises:
        InputError: No sweep matches, or its folder was renamed.
        StoreError: The plan is not readable.
    """
    folder = find_sweep(name, runs)
    if outline:
        plan, planned = read_outline(folder)
    else:
        plan = read_plan(folder)
        planned = Counter((trial.arm, trial.phase) for trial in plan.trials)
    if plan.name != folder.name:
        raise InputError(
            f"the folder {folder.root} must have the name of its sweep, {plan.name!r}. Rename the folder, or "
            "launch the spec again under another name."
        )
    return folder, plan, planned


@contextmanager
def readable_url(url: str, folder: SweepFolder) -> Iterator[str]:
    """Yield a URL for reading the ledger, or the URL of a temporary copy if the folder is not writable.

    SQLite must write next to a database to read it, so a copy allows reading on a read-only file system.
    """
    if url != folder.ledger_url or os.access(folder.root, os.W_OK) or not folder.ledger.is_file():
        yield url
        return
    from orchestrator.files.sqlite_files import copy_database, sqlite_url

    with copy_database(folder.ledger) as copy:
        yield sqlite_url(copy)


@contextmanager
def open_stored_sweep(
    name: str, runs: Path, storage: str | None = None, *, writes: bool = False, outline: bool = False
) -> Iterator[StoredSweep]:
    """Open the sweep called `name` and yield it.

    Args:
        name: Name or folder of the sweep.
        runs: Folder of sweeps.
        storage: URL of the ledger; None for the URL of the launch.
        writes: Whether the ledger will be written, so that a copy does not suffice.
        outline: Whether to omit the trials of the plan.

    Raises:
        InputError: No sweep matches.
        StoreError: The sweep is not readable.
    """
    folder, plan, planned = launched_sweep(name, runs, outline=outline)
    url = storage or read_setup(folder).ledger_url(folder)
    if url == folder.ledger_url and why_no_database(folder.ledger):
        raise StoreError(
            f"the ledger {folder.ledger} is missing or empty. If the sweep was killed before it began, "
            f"start it with `{command('resume', folder)}`; otherwise restore the ledger from a backup"
        )
    with ExitStack() as stack:
        place = url if writes else stack.enter_context(readable_url(url, folder))
        yield StoredSweep(folder, plan, planned, stack.enter_context(Ledger.open(place, plan.name)), url)
