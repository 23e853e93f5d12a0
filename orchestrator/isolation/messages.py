"""Define messages between the owner of a server process and the server."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KILL_CHILD = "kill child"
"""Request to kill the running child and all of its descendants."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings for all children of a server; the first message to the server."""

    module: str
    """The user's module, which the server imports once for all children."""
    preloaded: tuple[str, ...]
    """Modules of haltsweep that children need."""
    sys_path: tuple[str, ...]
    """Module search path."""
    launch_folder: Path
    """Working directory of the server."""
    environment: Mapping[str, str]
    """Environment variables, set before any import."""


@dataclass(frozen=True, slots=True)
class ChildOrder:
    """Request to run a function in a child. The owner sends the child's connection right after it."""

    target: str
    """`module:name` of the function, called as `function(payload, connection, launch_files)`."""
    payload: Any
    log: Path | None = None
    """File for output of the child."""
    scratch: Path | None = None
    """Folder to delete when the child has ended."""


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """Message that the child and all of its descendants have ended."""

    exit_code: int
    """Exit code as in `subprocess`: a negative number is the signal that ended the process."""
    is_oom_kill: bool = False
    """Whether the system killed the child because memory ran out."""

    @property
    def words(self) -> str:
        """The exit code in words, e.g. `was ended by SIGSEGV`."""
        if self.exit_code >= 0:
            return f"ended with exit code {self.exit_code}"
        names = {signal_number.value: signal_number.name for signal_number in signal.Signals}
        # Real-time signals have no names.
        return f"was ended by {names.get(-self.exit_code, f'signal {-self.exit_code}')}"
