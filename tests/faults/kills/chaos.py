"""A launching process that dies at a chosen moment, and checks of the sweep after it was resumed.

Moments are counted, not timed: one before every change of files below the runs folder, and one before and
after every transaction of the ledger. The same seed therefore kills at the same moment, and all moments
together cover every state that a crash can leave.
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

CHANGE_EVENTS = frozenset({"os.rename", "os.mkdir", "os.rmdir", "os.remove", "sqlite3.connect"})
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NEVER = -1


@dataclass(frozen=True)
class KillableSweep:
    """A sweep that tests launch, kill and resume."""

    root: Path
    plan: Plan
    tracking_uri: str | None = None
    storage: str | None = None
    """URL of the ledger; None for the ledger in the sweep's folder."""

    @property
    def folder(self) -> SweepFolder:
        return SweepFolder(self.root / "runs" / self.plan.name)

    @property
    def data(self) -> Path:
        return self.root / "data"

    def run_session(self, die_at: int = NEVER) -> bool:
        """Launch or resume in a subprocess that is killed at moment `die_at`; return whether it ended
        normally."""
        process = forks.Process(target=run_session, args=(self, die_at, None, synthetic_provenance()))
        process.start()
        return join_session(process)

    def count_moments(self) -> int:
        """Run a session to its end and count its moments."""
        receiver, sender = forks.Pipe(duplex=False)
        process = forks.Process(target=run_session, args=(self, NEVER, sender, synthetic_provenance()))
        process.start()
        assert join_session(process)
        return int(receiver.recv())

    def events(self) -> list[Event]:
        """Return all events of the ledger."""
        with Ledger.open(self.storage or self.folder.ledger_url, self.plan.name) as ledger:
            return list(ledger.events())

    def count_steps(self) -> Counter[str]:
        """Count how often every step of every trial ran."""
        return Counter((self.data / "steps.txt").read_text().splitlines())


def join_session(process: BaseProcess) -> bool:
    """Wait for the process; return False if it was killed."""
    process.join(60)
    assert process.exitcode in {0, -signal.SIGKILL}, (
        f"a session must end or be killed, got {process.exitcode}"
    )
    return process.exitcode == 0


def launch_or_resume(sweep: KillableSweep, driver: Any = "inline", **options: Any) -> SweepResult:
    """Launch a new sweep, or resume the launched one."""
    if sweep.folder.plan.exists():
        return resume_sweep(sweep.folder, driver=driver, **options)
    setup = Setup(sweep.data, PATH, storage=sweep.storage, tracking_uri=sweep.tracking_uri)
    return run_sweep(sweep.plan, sweep.folder, setup, f"name: {sweep.plan.name}\n", driver=driver, **options)


@cache
def synthetic_provenance() -> dict[str, Any]:
    """Collect the provenance of the synthetic workload once. Reading the installed packages takes longer than
    a small sweep, and writes nothing."""
    return collect_provenance(make_plan(1), Setup(Path(), PATH))


def run_session(
    sweep: KillableSweep, die_at: int, sender: Any = None, provenance: dict[str, Any] | None = None
) -> None:
    sweep.data.mkdir(parents=True, exist_ok=True)
    moments = MomentKiller(sweep.root / "runs", die_at)
    with patch(
        "orchestrator.execution.sweep.launch.collect_provenance",
        (lambda *_: provenance) if provenance else collect_provenance,
    ):
        launch_or_resume(sweep)
    if sender is not None:
        sender.send(moments.count)


class MomentKiller:
    """Count moments, and kill this process at moment `die_at`."""

    def __init__(self, root: Path, die_at: int) -> None:
        self.count = 0
        self._root = str(root)
        self._die_at = die_at
        self._thread = threading.get_ident()
        sys.addaudithook(self._audit)
        append = Ledger.append

        def counted_append(ledger: Ledger, *arguments: Any) -> None:
            self.pass_moment()
            append(ledger, *arguments)
            self.pass_moment()

        Ledger.append = counted_append  # type: ignore[method-assign]

    def _audit(self, name: str, arguments: tuple[Any, ...]) -> None:
        is_change = name in CHANGE_EVENTS or (name == "open" and arguments[2] & WRITE_FLAGS)
        is_own_thread = threading.get_ident() == self._thread
        if is_change and is_own_thread and str(arguments[0]).startswith(self._root):
            self.pass_moment()

    def pass_moment(self) -> None:
        self.count += 1
        if self.count == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def check_log(events: list[Event], plan: Plan) -> None:
    """Assert that every planned trial ended once and for good, with each step once and in order."""
    ended_trials = [
        event.trial_id
        for event in events
        if event.kind is EventKind.ENDED and OutcomeKind(event.payload["kind"]).is_final
    ]
    assert sorted(map(str, ended_trials)) == sorted(trial.trial_id for trial in plan.trials)
    for history in content(events).values():
        steps = [measurement["step"] for measurement in history.measured]
        assert steps == sorted(set(steps))
