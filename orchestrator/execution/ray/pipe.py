"""What the process that launches and the process that Ray's driver runs in say to each other.

First comes `Begin`. The driver's process then sends `Connected`, calls as tuples (method of `Hooks`, slots of
the cluster or None, arguments), each of which is answered, and in the end `Over` or `Failed`.
"""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import HaltsweepError
from orchestrator.execution.ray.node_check import NodeRequirements
from orchestrator.execution.trial.jobs import JobEncoder
from orchestrator.spec.section import Resources


@dataclass(frozen=True, slots=True)
class Begin:
    """What is to be run, and on which Ray."""

    orders: JobEncoder
    resources: Resources
    address: str | None
    """None: a Ray of this machine's own is started."""
    num_cpus: int | None
    needs: NodeRequirements | None
    """What every node of a cluster that is not ours is asked for before it gets trials."""


@dataclass(frozen=True, slots=True)
class Connected:
    """There is a Ray, and trials fit on it."""

    servers: dict[str, int]
    """Name and process id of what must live, as far as it is ours."""
    head: str | None
    """HOST:PORT of the head of a cluster that is not ours."""
    scratch: Path


@dataclass(frozen=True, slots=True)
class Over:
    """The session has nothing left to do."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Ray's driver gave up."""

    message: str
    kind: type[HaltsweepError] | None = None
    """None: Ray's fault, not a known one."""
