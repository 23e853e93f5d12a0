"""Messages between a driver, the trial server of a slot and the child process that runs a trial."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.trials import Outcome


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What all trials of a slot have in common; sent to the server once."""

    workload: str
    """`module:name` of the trainable."""
    sys_path: tuple[str, ...]
    """Where the driver looks for modules."""
    launch_folder: Path
    """The folder from which the sweep was launched."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to set before anything is imported, such as the number of threads."""


@dataclass(frozen=True, slots=True)
class ServerReady:
    """The server has imported the trainable."""

    forks: bool
    """Whether each trial is a fork of the server; otherwise each gets a fresh interpreter."""
    reason: str = ""
    """Why trials cannot be forks."""


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """The process of a trial has ended, and so have all of its descendants."""

    exit_code: int
    """As `subprocess` has it: minus the signal that ended the process."""


@dataclass(frozen=True, slots=True)
class KillChild:
    """Kill the process of the running trial and all of its descendants."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a trial does after a reply."""

    stop: Outcome | None = None
    """Let go of the trial, which has ended so."""
    save: bool = False
    """Write a checkpoint before letting go."""
    heard: bool = True
    """Whether the ledger holds everything that the trial has reported."""


@dataclass(frozen=True, slots=True)
class ChildDied:
    """The process of a trial ended before the trial did."""

    reason: str
    outcome: Outcome | None = None
    """How the trial ends, where the trial itself ended its process; None if it may run again."""
