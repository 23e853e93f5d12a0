"""What a report holds beside its numbers: warnings, retried and failed trials, the scope of its intervals."""

from dataclasses import dataclass
from typing import Literal

WarningCode = Literal[
    "different-test-sets",
    "fixed-by-construction",
    "chosen-differently",
    "several-fields",
    "one-finished-trial",
]


@dataclass(frozen=True, slots=True)
class ReportWarning:
    """What a reader must know of one comparison before its verdict."""

    code: WarningCode
    arm: str
    outcome: str
    """The primary outcome that it is about; empty for all of them."""
    text: str


@dataclass(frozen=True, slots=True)
class IntervalScope:
    """What the intervals and p values of differences account for."""

    varied: tuple[str, ...]
    """Sources of variation that differ between observations."""
    shared: tuple[str, ...]
    """Sources that all observations share, so that no interval covers them."""
    method: str
    level: float
    comparisons: int
    """Comparisons that the level holds for together."""
    unchecked_tests: tuple[str, ...]
    """Splits of primary outcomes of which no digests show that all arms had the same examples."""


@dataclass(frozen=True, slots=True)
class RetriedTrial:
    """A failed trial that was retried."""

    trial_id: str
    arm: str
    phase: str
    number: int
    seed: int
    at: tuple[float, ...]
    """Times of the retries, in Unix seconds."""
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class FailedReadings:
    """Checkpoints of an arm that were read again under one setting, and of which no seed has a value."""

    arm: str
    setting: str
    seeds: int
