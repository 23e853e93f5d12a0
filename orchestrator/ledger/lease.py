"""Who holds a sweep, and whether that process still lives."""

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from orchestrator.errors import InputError

BIRTH_FIELD = 19
"""Position of `starttime` in /proc/<pid>/stat, counted after the command's closing parenthesis."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, identified so well that a reused pid is not taken for it."""

    host: str
    pid: int
    boot_id: str
    """Boot of the machine and pid namespace of the process: within it, pids can be compared."""
    process_started_at: float
    """Birth of the process: clock ticks since boot on Linux, Unix seconds elsewhere."""
    started_at: float
    """Unix seconds at which it asked for the sweep."""

    @classmethod
    def current(cls) -> "Holder":
        """This process."""
        pid = os.getpid()
        birth = process_birth(pid)
        assert birth is not None, "the running process must exist"
        return cls(socket.gethostname(), pid, boot_id(), birth, time.time())

    def same_process(self, other: "Holder") -> bool:
        """Whether both stand for one process, whenever it asked."""
        return (self.boot_id, self.pid, self.process_started_at) == (
            other.boot_id,
            other.pid,
            other.process_started_at,
        )

    def lives(self) -> bool | None:
        """Whether the process lives, as far as this machine can tell; None if it ran elsewhere."""
        if (self.host, self.boot_id) != (socket.gethostname(), boot_id()):
            return None
        return process_birth(self.pid) == self.process_started_at


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to a sweep until somebody claims it with a higher token."""

    sweep: str
    token: int
    """Fencing token: grows with every claim."""
    holder: Holder
    expires_at: float
    """Unix seconds, by the clock of the store."""

    def stands(self, now: float) -> bool:
        """Whether the holder lives, or, on another machine, may live; `now` by the clock of the store."""
        lives = self.holder.lives()
        return self.expires_at > now if lives is None else lives


class LeaseHeld(InputError):
    """Somebody else runs the sweep."""

    def __init__(self, lease: Lease, left_s: float) -> None:
        holder = lease.holder
        remedy = (
            f"stop it (`haltsweep stop {lease.sweep}`, or kill {holder.pid}) and try again"
            if holder.lives()
            else f"stop it (`haltsweep stop {lease.sweep}`), or if that machine is gone wait "
            f"{max(left_s, 0):.0f} s and try again"
        )
        super().__init__(
            f"sweep {lease.sweep!r} must have one holder at a time, and process {holder.pid} on host "
            f"{holder.host!r} holds it; watch it with `haltsweep status {lease.sweep}`, or {remedy}"
        )
        self.lease = lease


def boot_id() -> str:
    """Names the running boot of this machine and, in a container, its pid namespace."""
    kernel = Path("/proc/sys/kernel/random/boot_id")
    if not kernel.exists():
        return f"boot-{psutil.boot_time():.0f}"
    return f"{kernel.read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"


def process_birth(pid: int) -> float | None:
    """When the process was born, by a clock that is never set; None if it is gone or a zombie."""
    if Path("/proc/self/stat").exists():
        return _linux_birth(pid)
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.NoSuchProcess:
        return None


def _linux_birth(pid: int) -> float | None:
    # psutil's create_time moves when the wall clock is set; ticks since boot do not.
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else float(fields[BIRTH_FIELD])
