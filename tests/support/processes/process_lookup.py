"""Find processes that a test has started, and wait until they end."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

AGENTS = ("ray::RuntimeEnv", "ray::Dashboard")
"""Two helper processes of Ray that hold no data and end a minute after their raylet."""
WORKERS = "ray::PlacedTrial"
"""Name prefix of Ray workers that run a trial."""
WAIT_S = 180.0
PAUSE_FACTOR = 9
"""Pause between two polls, as a multiple of the time that a poll takes."""


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """Return the children of a process, recursively."""
    with suppress(psutil.NoSuchProcess):
        return list(process.children(recursive=True))
    return []


def with_prefix(processes: Sequence[psutil.Process], *prefixes: str) -> list[psutil.Process]:
    """Return the processes whose name starts with one of the prefixes."""
    matches = []
    for process in processes:
        with suppress(psutil.Error):
            if process.name().startswith(prefixes):
                matches.append(process)
    return matches


def end(processes: Sequence[psutil.Process]) -> None:
    """Kill the processes and wait until they are gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=WAIT_S)


def wait_until(holds: Callable[[], object], description: str) -> None:
    """Wait until `holds` returns true; fail after a timeout."""
    deadline = time.monotonic() + WAIT_S
    while not poll_condition(holds, 0.02):
        assert time.monotonic() < deadline, f"waited too long until {description}"


def poll_condition(holds: Callable[[], object], least_s: float) -> bool:
    """Return whether the condition holds; if not, pause for at least `least_s`.

    A poll that reads a ledger is slow. The pause leaves the processor to the work that a test waits for.
    """
    start = time.thread_time()
    if holds():
        return True
    time.sleep(max(least_s, PAUSE_FACTOR * (time.thread_time() - start)))
    return False
