"""A launching process that dies at a chosen moment, and what must be true after it was resumed.

Moments are counted, not timed: before every change that the process makes to files below the folder of runs,
and before and after every transaction of the ledger. So the same seed kills at the same place, and all places
together are all that a crash can leave behind.
"""

import os
import signal
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

from orchestrator.execution.code_digests import collect_provenance
from orchestrator.execution.sweep.launch import resume_sweep, run_sweep
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.execution.sweep.open_sweep import SweepResult
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind
from tests.support.processes.forks import forks
from tests.support.processes.logs import content
from tests.support.specs.plans import make_plan
from tests.support.sweeps.workloads import PATH

CHANGES = frozenset({"os.rename", "os.mkdir", "os.rmdir", "os.remove", "sqlite3.connect"})
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NEVER = -1


@dataclass(frozen=True)
class Place:
    """A sweep that is launched, killed and resumed."""

    root: Path
    plan: Plan
    tracking_uri: str | None = None
    storage: str | None = None
    """URL of the ledger; None for the one in the sweep's folder."""

    @property
    def folder(self) -> SweepFolder:
        return SweepFolder(self.root / "runs" / self.plan.name)

    @property
    def data(self) -> Path:
        return self.root / "data"

    def session(self, die_at: int = NEVER) -> bool:
        """Launch or resume in a process of its own, killed at moment `die_at`; whether it came to its end."""
        process = forks.Process(target=_session, args=(self, die_at, None, origin()))
        process.start()
        return ended_well(process)

    def moments(self) -> int:
        """How many there are in a session from here to the end; runs it."""
        receiver, sender = forks.Pipe(duplex=False)
        process = forks.Process(target=_session, args=(self, NEVER, sender, origin()))
        process.start()
        assert ended_well(process)
        return int(receiver.recv())

    def events(self) -> list[Event]:
        """The whole log."""
        with Ledger.open(self.storage or self.folder.ledger_url, self.plan.name) as ledger:
            return list(ledger.events())

    def steps_done(self) -> Counter[str]:
        """How often every step of every trial was taken."""
        return Counter((self.data / "steps.txt").read_text().splitlines())


def ended_well(process: BaseProcess) -> bool:
    """Wait; False if the process was killed."""
    process.join(60)
    assert process.exitcode in {0, -signal.SIGKILL}, (
        f"a session must end or be killed, got {process.exitcode}"
    )
    return process.exitcode == 0


def go(place: Place, driver: Any = "inline", **more: Any) -> SweepResult:
    """Launch, or resume what was launched."""
    if place.folder.plan.exists():
        return resume_sweep(place.folder, driver=driver, **more)
    setup = Setup(place.data, PATH, storage=place.storage, tracking_uri=place.tracking_uri)
    return run_sweep(place.plan, place.folder, setup, f"name: {place.plan.name}\n", driver=driver, **more)


@cache
def origin() -> dict[str, Any]:
    """Where results of the synthetic workload come from, found out once.

    To read what is installed takes longer than a small sweep, and writes nothing.
    """
    return collect_provenance(make_plan(1), Setup(Path(), PATH))


def _session(place: Place, die_at: int, sender: Any = None, known: dict[str, Any] | None = None) -> None:
    place.data.mkdir(parents=True, exist_ok=True)
    moments = _Moments(place.root / "runs", die_at)
    with patch(
        "orchestrator.execution.sweep.launch.collect_provenance",
        (lambda *_: known) if known else collect_provenance,
    ):
        go(place)
    if sender is not None:
        sender.send(moments.seen)


class _Moments:
    """Counts, and kills this process when the count is full."""

    def __init__(self, root: Path, die_at: int) -> None:
        self.seen = 0
        self._root = str(root)
        self._die_at = die_at
        self._thread = threading.get_ident()
        sys.addaudithook(self._audit)
        append = Ledger.append

        def counted(ledger: Ledger, *arguments: Any) -> None:
            self._moment()
            append(ledger, *arguments)
            self._moment()

        Ledger.append = counted  # type: ignore[method-assign]

    def _audit(self, name: str, arguments: tuple[Any, ...]) -> None:
        changes = name in CHANGES or (name == "open" and arguments[2] & WRITING)
        ours = threading.get_ident() == self._thread
        if changes and ours and str(arguments[0]).startswith(self._root):
            self._moment()

    def _moment(self) -> None:
        self.seen += 1
        if self.seen == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def check_log(events: list[Event], plan: Plan) -> None:
    """Every planned trial ended for good once; its steps are there once, in order."""
    ends = [
        each.trial_id
        for each in events
        if each.kind is EventKind.ENDED and OutcomeKind(each.payload["kind"]).final
    ]
    assert sorted(map(str, ends)) == sorted(each.trial_id for each in plan.trials)
    for history in content(events).values():
        steps = [each["step"] for each in history.measured]
        assert steps == sorted(set(steps))
