"""Opens a launched sweep to read it: its plan, its ledger, its records. Never claims anything."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.cli.locations import command, find_sweep
from orchestrator.conductor.budget import budget_end, error_end
from orchestrator.errors import InputError, StoreError
from orchestrator.execution.sweep.launch_folder import read_setup
from orchestrator.files.sqlite_files import never_made
from orchestrator.garbage import garbage_collection_off
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event
from orchestrator.ledger.fold import OF_MEASUREMENTS, measurements, records
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import read_plan
from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, Record
from trainables.protocol import Measurement


@dataclass(frozen=True, slots=True)
class Opened:
    """A sweep as found on disk."""

    folder: SweepFolder
    plan: Plan
    ledger: Ledger
    ledger_url: str

    def records(self) -> list[Record]:
        """One record a trial that was asked for."""
        return records(self.ledger.events(), self.plan)

    def measured_records(self) -> tuple[list[Record], dict[str, list[Measurement]]]:
        """The same, and every measurement of confirm trials by trial id; the log is read once."""
        confirmed = {each.trial_id for each in self.plan.trials if each.phase == "confirm"}
        kept: list[Event] = []

        def passing() -> Iterator[Event]:
            for event in self.ledger.events():
                if event.kind in OF_MEASUREMENTS and event.trial_id in confirmed:
                    kept.append(event)
                yield event

        with garbage_collection_off():
            return records(passing(), self.plan), measurements(kept)

    def newest_records(self, *, brief: bool = False) -> list[Record]:
        """The same at a fraction of the cost, but that `best` is the last measurement.

        `brief`: a trial that has ended for good has no assignment and settings, attempts and `started_at`
        only if it failed, and stands where it was measured last. All measurements are read if the last
        measurement of a finished search trial lacks an objective, or if earlier reports count too.
        """
        objectives = self.plan.search.objectives if self.plan.search is not None else ()
        if any(each.scope != "last" for each in objectives):
            return self.records()
        found = records(self.ledger.newest(brief=brief), self.plan, brief=brief)
        wanted = [each.metric for each in objectives]
        judged = (
            each.judged_by(wanted)
            for each in found
            if wanted and each.phase == "search" and each.outcome is OutcomeKind.FINISHED
        )
        return found if all(judged) else self.records()

    def spent(self) -> str:
        """What of the budget is used up, if that is why nobody runs the sweep; else empty."""
        return budget_end(self._last_event(), self.plan)

    def failing(self) -> str:
        """Return the error that stopped the sweep; empty if the sweep runs or ended otherwise."""
        return error_end(self._last_event())

    def _last_event(self) -> Event | None:
        last = max(0, self.ledger.last_seq() - 1)
        return next(iter(self.ledger.events(after=last)), None)


def found(name: str, runs: Path) -> tuple[SweepFolder, Plan]:
    """Folder and plan of the sweep called `name`. Raises InputError; StoreError if they cannot be read."""
    folder = find_sweep(name, runs)
    plan = read_plan(folder)
    if plan.name != folder.name:
        raise InputError(
            f"a sweep's folder must bear its name, and {folder.root} holds {plan.name!r}; "
            "call the folder so, or launch the spec again under another name"
        )
    return folder, plan


@contextmanager
def readable(url: str, folder: SweepFolder) -> Iterator[str]:
    """URL to read the ledger at `url` by: of a copy of it where nobody may write beside it, as SQLite must.

    So a sweep on a file system that is mounted read-only can be looked at.
    """
    if url != folder.ledger_url or os.access(folder.root, os.W_OK) or not folder.ledger.is_file():
        yield url
        return
    from orchestrator.files.sqlite_files import snapshot, url_of

    with snapshot(folder.ledger) as copy:
        yield url_of(copy)


@contextmanager
def opened(name: str, runs: Path, storage: str | None = None, *, writes: bool = False) -> Iterator[Opened]:
    """The sweep called `name`; `writes`: its ledger will be written, and must be the ledger itself.

    Raises InputError if there is none, StoreError if it cannot be read.
    """
    folder, plan = found(name, runs)
    url = storage or read_setup(folder).ledger_url(folder)
    if url == folder.ledger_url and (gone := never_made(folder.ledger)):
        raise StoreError(
            f"the ledger {folder.ledger} must be there, and {gone}: if the sweep was killed before it began, "
            f"`{command('resume', folder)}` begins it; else restore the ledger from a backup"
        )
    with ExitStack() as stack:
        place = url if writes else stack.enter_context(readable(url, folder))
        yield Opened(folder, plan, stack.enter_context(Ledger.open(place, plan.name)), url)
