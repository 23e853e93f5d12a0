"""Messages between the owner of a server process and the server."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What all children of a server have in common; sent once, first."""

    module: str
    """The user's module, imported beforehand, so that children find it as it is after its import."""
    preloaded: tuple[str, ...]
    """Modules of ours that children need."""
    sys_path: tuple[str, ...]
    """Where modules are looked for."""
    launch_folder: Path
    """Working directory of the server."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The environment, set before anything is imported."""


@dataclass(frozen=True, slots=True)
class ChildOrder:
    """Run a function in a child; followed by the descriptor of a connection that the child gets."""

    target: str
    """`module:name` of the function, called as `function(payload, connection, launch_files)`."""
    payload: Any
    log: Path | None = None
    """File for what the child prints."""
    scratch: Path | None = None
    """Folder to delete when the child has ended."""


@dataclass(frozen=True, slots=True)
class ServerReady:
    """The server has imported the module."""

    spawn_reason: str = ""
    """Why children are fresh interpreters and no forks; empty if they are forks."""


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """The child has ended, and so have all of its descendants."""

    exit_code: int
    """As `subprocess` has it: minus the signal that ended the process."""

    @property
    def words(self) -> str:
        """How the process ended, e.g. `was ended by SIGSEGV`."""
        if self.exit_code >= 0:
            return f"ended with exit code {self.exit_code}"
        names = {each.value: each.name for each in signal.Signals}
        # Real-time signals have no names.
        return f"was ended by {names.get(-self.exit_code, f'signal {-self.exit_code}')}"


@dataclass(frozen=True, slots=True)
class KillChild:
    """Kill the running child and all of its descendants."""
