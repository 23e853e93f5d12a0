"""Processes of a test's own: who they are, whom they have started, and that they end."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

AGENTS = ("ray::RuntimeEnv", "ray::Dashboard")
"""Two processes of Ray's that hold nothing, and end a minute after their raylet."""
WORKERS = "ray::PlacedTrial"
"""Ray's workers that run a trial."""
WAIT_S = 180.0
PAUSE = 9
"""How many times as long as looking takes is waited before looking again."""


def family_of(process: psutil.Process) -> list[psutil.Process]:
    """What it has started, and what that has."""
    with suppress(psutil.NoSuchProcess):
        return list(process.children(recursive=True))
    return []


def named(processes: Sequence[psutil.Process], *beginnings: str) -> list[psutil.Process]:
    """Those whose name begins so."""
    found = []
    for process in processes:
        with suppress(psutil.Error):
            if process.name().startswith(beginnings):
                found.append(process)
    return found


def running_module(processes: Sequence[psutil.Process], module: str) -> list[psutil.Process]:
    """Those that were started by `python -m module`."""
    found = []
    for process in processes:
        with suppress(psutil.Error):
            if module in process.cmdline():
                found.append(process)
    return found


def end(processes: Sequence[psutil.Process]) -> None:
    """Kill them, and wait until they are gone."""
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(processes, timeout=WAIT_S)


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Fails if it takes too long."""
    deadline = time.monotonic() + WAIT_S
    while not looked(holds, 0.02):
        assert time.monotonic() < deadline, f"waited too long until {what}"


def looked(holds: Callable[[], object], least_s: float) -> bool:
    """Whether it holds; if not, after a pause of at least `least_s`.

    To look may take long, as where a ledger is read: what is waited for has the processor meanwhile.
    """
    began = time.thread_time()
    if holds():
        return True
    time.sleep(max(least_s, PAUSE * (time.thread_time() - began)))
    return False
