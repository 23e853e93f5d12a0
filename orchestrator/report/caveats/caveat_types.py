"""Data types of a report's caveats: warnings, retried and failed trials, scope of intervals."""

from dataclasses import dataclass
from typing import Literal

WarningCode = Literal[
    "different-test-sets",
    "fixed-by-construction",
    "chosen-differently",
    "several-fields",
    "one-finished-trial",
    "at-floor",
]


@dataclass(frozen=True, slots=True)
class ReportWarning:
    """A warning about one comparison, to be read before its verdict."""

    code: WarningCode
    arm: str
    outcome: str
    """Primary outcome that the warning is about; empty for all of them."""
    text: str


@dataclass(frozen=True, slots=True)
class IntervalScope:
    """Sources of variation that the intervals and p-values of differences account for."""

    varied: tuple[str, ...]
    """Sources of variation that differ between observations."""
    shared: tuple[str, ...]
    """Sources that all observations share, so that intervals do not cover them."""
    method: str
    level: float
    comparisons: int
    """Number of comparisons for which the level holds simultaneously."""
    unchecked_tests: tuple[str, ...]
    """Splits of primary outcomes for which no digests verify that all arms had the same examples."""


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
    """Re-evaluations of an arm's checkpoints under one setting, none of which gave a value."""

    arm: str
    setting: str
    seeds: int
