"""Messages between the conductor and the drivers of trials, as plain values."""

from dataclasses import dataclass

from orchestrator.trials import Outcome, OutcomeKind
from trainables.protocol import Measurement


class NoAdmissibleDraw(Exception):
    """No draw satisfied the constraints of the space."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Decision to continue the trial."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Decision to end the trial now, with this outcome."""

    kind: OutcomeKind
    reason: str

    @property
    def outcome(self) -> Outcome:
        """Return the outcome to record once the worker has stopped the trial."""
        return Outcome(self.kind, self.reason)


TrialDecision = Continue | Stop


@dataclass(frozen=True, slots=True)
class Reply:
    """Result of one step of a worker: at most one measurement, checkpoint and end, in this order."""

    measurement: Measurement | None = None
    checkpoint: int | None = None
    """Step of a checkpoint that is now complete on disk."""
    ended: Outcome | None = None
    """Outcome of the trial, set once the worker has stopped it."""
    unread_fields: tuple[str, ...] = ()
    """Paths of settings that the training code has not read; empty if reads are not recorded.

    See `InstrumentedSettings.unread_fields` for what is unknown.
    """


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of one arm over all its phases."""

    arm: str
    planned: int
    running: int
    finished: int
    pruned: int
    failed: int
    best: float | None
    """Best value of the first objective among the finished search trials."""
    seconds: float
    """Work measured so far, in seconds."""
    skipped: int = 0
    """Number of trials that never began because their result was no longer needed."""
    infeasible: int = 0
    """Number of trials whose settings could not be trained; each is replaced by another trial."""

    @property
    def ended(self) -> int:
        """Return the number of trials that will not run again."""
        return self.finished + self.pruned + self.failed + self.skipped
