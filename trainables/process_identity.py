"""Identify the process that owns a file or a sweep, and determine whether that process is alive.

A process id alone is not enough: containers and machines that share a folder or a database reuse the same
numbers, and a machine reuses the numbers of processes that have ended.
"""

import base64
import hashlib
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import psutil

START_FIELD = 19
"""Position of `starttime` in /proc/<pid>/stat, counted after the command's closing parenthesis."""
_LABEL = re.compile(r"([0-9]{1,9})-([a-z2-7]{5})([a-z2-7]{2})(?:-|$)")


class ProcessState(Enum):
    """State of another process, as far as this process can see."""

    ALIVE = auto()
    DEAD = auto()
    UNKNOWN = auto()
    """The other process ran in another container or on another machine, or the system hides its state."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Unique identity of a process, across containers, machines and boots."""

    host: str
    pid: int
    boot_id: str
    """Boot of the machine and namespace of process ids; only ids with the same `boot_id` can be compared."""
    process_started_at: float
    """Start of the process: clock ticks since boot on Linux, Unix seconds elsewhere."""

    def is_same_process(self, other: "ProcessIdentity") -> bool:
        """Return whether both identities belong to the same process."""
        return (self.host, self.boot_id, self.pid, self.process_started_at) == (
            other.host,
            other.boot_id,
            other.pid,
            other.process_started_at,
        )

    def state(self) -> ProcessState:
        """Return whether the process is alive."""
        if (self.host, self.boot_id) != (socket.gethostname(), boot_id()):
            return ProcessState.UNKNOWN
        return _local_state(self.pid, lambda started_at: started_at == self.process_started_at)


def this_process() -> ProcessIdentity:
    """Return the identity of this process."""
    return ProcessIdentity(socket.gethostname(), os.getpid(), boot_id(), _start_of_this_process())


def process_label() -> str:
    """Return the identity of this process as `<pid>-<7 letters and digits>`, for names of temporary files.

    The label is short, since the path of a socket may have at most 107 bytes.
    """
    return f"{os.getpid()}-{origin()}{_shorten(_start_of_this_process(), 2)}"


def origin() -> str:
    """Return a five-character hash of the host name, the boot id and the namespace of process ids."""
    return _shorten(f"{socket.gethostname()}\n{boot_id()}", 5)


def state_of_label(text: str) -> ProcessState | None:
    """Return the state of the process whose label `text` starts with; None if it starts with no label."""
    match = _LABEL.match(text)
    if match is None:
        return None
    pid, label_origin, start = match.groups()
    if label_origin != origin():
        return ProcessState.UNKNOWN
    return _local_state(int(pid), lambda started_at: _shorten(started_at, 2) == start)


def boot_id() -> str:
    """Return an id of the current boot and, on Linux, of the namespace of process ids."""
    kernel = Path("/proc/sys/kernel/random/boot_id")
    if not kernel.exists():
        return f"boot-{psutil.boot_time():.0f}"
    return f"{kernel.read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"


def process_start(pid: int) -> float | None:
    """Return the start of process `pid` as in `ProcessIdentity.process_started_at`; None for a zombie.

    Raises:
        OSError: There is no such process, or the system hides it from this user.
    """
    if not Path("/proc/self/stat").exists():
        return _start_by_psutil(pid)
    # In a namespace without a separate /proc, /proc shows the process ids of another namespace.
    if Path("/proc/self").readlink() != Path(str(os.getpid())):
        raise PermissionError("/proc belongs to another namespace of process ids")
    return _start_from_proc(str(pid))


def _local_state(pid: int, is_start: Callable[[float], bool]) -> ProcessState:
    """Return the state of process `pid` of this namespace; DEAD if `is_start` rejects its start time."""
    try:
        started_at = process_start(pid)
    except OSError:
        # Signal 0 finds hidden processes too, so only an unknown id means that the process has ended.
        return ProcessState.UNKNOWN if _process_exists(pid) else ProcessState.DEAD
    return ProcessState.ALIVE if started_at is not None and is_start(started_at) else ProcessState.DEAD


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # signal 0 only checks that the process exists
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # a process of another user; a number that is no process id
        return True
    return True


def _start_of_this_process() -> float:
    has_proc = Path("/proc/self/stat").exists()
    started_at = _start_from_proc("self") if has_proc else _start_by_psutil(os.getpid())
    assert started_at is not None, "the running process is no zombie"
    return started_at


def _start_from_proc(name: str) -> float | None:
    # psutil's create_time changes when the wall clock is set; ticks since boot do not.
    text = Path(f"/proc/{name}/stat").read_text(errors="replace")
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else float(fields[START_FIELD])


def _start_by_psutil(pid: int) -> float | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error as error:
        raise PermissionError(str(error)) from error


def _shorten(fact: object, length: int) -> str:
    """Return a hash of `fact` with `length` letters and digits."""
    digest = hashlib.blake2b(str(fact).encode(), digest_size=5).digest()
    return base64.b32encode(digest).decode().lower()[:length]
