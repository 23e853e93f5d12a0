"""Implement `haltsweep stop`, which drains a running sweep from any machine that reaches its ledger."""

import getpass
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.display.console import print_line
from orchestrator.cli.display.lease_messages import describe_silent_holder
from orchestrator.cli.locations import command, find_sweep, runs_root
from orchestrator.cli.options import Runs, Storage, SweepName
from orchestrator.errors import InputError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.ledger.lease import Lease
    from orchestrator.ledger.store import Ledger

DEFAULT_TIMEOUT_S = 600.0
POLL_S = 0.2
MESSAGE_INTERVAL_S = 10.0


def stop(
    name: SweepName,
    now: Annotated[
        bool, typer.Option("--now", help="End running trials at once; `resume` repeats their last steps.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until the sweep has stopped.")] = True,
    timeout: Annotated[
        float, typer.Option(help="Maximum number of seconds to wait.", min=0.0)
    ] = DEFAULT_TIMEOUT_S,
    runs: Runs = None,
    storage: Storage = None,
) -> None:
    """Stop a running sweep from any machine; `resume` continues it.

    Each trial stores a checkpoint at its next report and ends.
    """
    with _open_ledger(name, runs_root(runs), storage) as (ledger, resume):
        lease = ledger.request_stop(_requester(), at_once=now)
        if lease is None:
            state = describe_silent_holder(ledger) or "no process runs it"
            print_line(f"{ledger.sweep}: {state}; continue with: {resume}")
            return
        holder = f"process {lease.holder.pid} on {lease.holder.host}"
        time_text = "at once" if now else "after each trial has stored a checkpoint at its next report"
        print_line(f"{ledger.sweep}: {holder} was asked to stop {time_text}")
        if wait:
            _wait_for_end(ledger, lease, timeout)
            print_line(f"{ledger.sweep}: stopped; continue with: {resume}")


@contextmanager
def _open_ledger(name: str, runs: "Path", storage: str | None) -> "Iterator[tuple[Ledger, str]]":
    """Yield the sweep's ledger, and the command that resumes the sweep."""
    from orchestrator.cli.stored_sweep import open_stored_sweep
    from orchestrator.ledger.store import Ledger

    try:
        folder = find_sweep(name, runs)
    except InputError:
        if storage is None:
            raise
        with Ledger.open(storage, name) as ledger:
            yield ledger, f"haltsweep resume {name}, on the machine with its folder"
        return
    with open_stored_sweep(str(folder.root), runs, storage, writes=True) as sweep:
        yield sweep.ledger, command("resume", sweep.folder)


def _requester() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # the user of a container may have no name
        user = f"user {os.getuid()}"
    return f"{user} on {socket.gethostname()} (process {os.getpid()})"


def _wait_for_end(ledger: "Ledger", lease_to_end: "Lease", timeout_s: float) -> None:
    """Wait until the session of `lease_to_end` has ended. Raise `StoreError` after `timeout_s` seconds."""
    started_at = shown_at = time.monotonic()
    while (lease := ledger.lease()) is not None and lease.token == lease_to_end.token and ledger.is_held():
        now = time.monotonic()
        if now - started_at >= timeout_s:
            holder = lease_to_end.holder
            raise StoreError(
                f"--timeout: sweep {ledger.sweep!r} has not stopped within {timeout_s:g} s. "
                f"Process {holder.pid} on {holder.host} has the request to stop: wait, repeat with --now, "
                f"or end that process (kill {holder.pid})"
            )
        if now - shown_at >= MESSAGE_INTERVAL_S:
            shown_at = now
            print_line(
                f"waiting {now - started_at:.0f} s for the next report of its trials; --now stops without a "
                "report"
            )
        time.sleep(POLL_S)
