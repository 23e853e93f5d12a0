"""Run sweeps in separate processes that may kill themselves at an event of the ledger.

    python -m orchestrator.testing.chaos_session <<< '{"path": ..., "overrides": [...], "runs": ..., ...}'

Each line of the input is one session. A fork runs it, since imports take longer than a small sweep. For each
session the output has one line: its exit code, or minus the number of the signal that killed it. Kills depend
on the number of events and not on time: the process dies when exactly `kill_at` events are written.
"""

import importlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from orchestrator.execution.sweep.launch import resume_sweep, run_sweep
from orchestrator.execution.sweep.launch_folder import DEFAULT_WORKLOAD, Setup
from orchestrator.files.json_values import from_json_values
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.store import Ledger
from orchestrator.plan.planner import plan_file
from orchestrator.spec.load import to_yaml

PRELOADED = (
    "orchestrator.conductor.arm_search",
    "scipy.optimize",
    "sqlalchemy.dialects.sqlite",
    "trainables.training",
)
"""Modules that every session imports; importing them starts no thread, which a fork would lack."""


@dataclass(frozen=True)
class ChaosSession:
    """The arguments of one session."""

    path: str
    overrides: tuple[str, ...]
    profile: str | None
    runs: str
    data: str
    kill_at: int | None = None
    """Number of events after which the process is killed; None for never."""


def run(session: ChaosSession) -> None:
    """Launch the sweep, or resume it if it was launched before."""
    importlib.invalidate_caches()  # modules may have been written since the process started
    if session.kill_at is not None:
        _die_after(session.kill_at)
    source, plan = plan_file(Path(session.path), session.overrides, session.profile)
    folder = SweepFolder(Path(session.runs) / plan.name)
    if folder.plan.exists():
        resume_sweep(folder, driver="inline")
        return
    workload, code = plan.trainable or DEFAULT_WORKLOAD, str(Path.cwd())
    setup = Setup(Path(session.data), workload=workload, code=code)
    run_sweep(plan, folder, setup, to_yaml(source.spec), driver="inline")


def _die_after(events: int) -> None:
    """Kill this process as soon as it has written `events` events to the ledger."""
    append, events_left = Ledger.append, events

    def counted(ledger: Ledger, new: "tuple[Event, ...]", lease: Lease) -> None:
        nonlocal events_left
        append(ledger, new[:events_left], lease)
        events_left -= len(new)
        if events_left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    Ledger.append = counted  # type: ignore[method-assign,assignment]


def main() -> None:
    """Run one session after the other until the input ends."""
    for name in PRELOADED:
        importlib.import_module(name)

    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discards the output of training code
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            replies.close()
            run(from_json_values(ChaosSession, json.loads(line)))
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=replies, flush=True)


if __name__ == "__main__":
    main()
