"""What the conductor answers and what a worker replies: plain values, the same for every driver."""

from dataclasses import dataclass

from orchestrator.trials import Outcome, OutcomeKind
from trainables.protocol import Measurement


class NothingAdmitted(Exception):
    """No draw met the constraints of the space."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on training."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the trial now, with this outcome."""

    kind: OutcomeKind
    reason: str

    @property
    def outcome(self) -> Outcome:
        """What to tell once the worker has let go."""
        return Outcome(self.kind, self.reason)


TrialDecision = Continue | Stop


@dataclass(frozen=True, slots=True)
class Reply:
    """What one step of a worker brought: at most one measurement, checkpoint and end, in this order."""

    measurement: Measurement | None = None
    checkpoint: int | None = None
    """Step of a checkpoint that is now complete on disk."""
    ended: Outcome | None = None
    """Set once; the worker has then let go of the trial."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one arm is, over all its phases."""

    arm: str
    planned: int
    running: int
    finished: int
    pruned: int
    failed: int
    best: float | None
    """Best value of the first objective among the finished search trials."""
    seconds: float
    """Seconds of work measured so far."""
    skipped: int = 0
    """Trials that never began because what they were for had been decided."""
    infeasible: int = 0
    """Trials whose settings could not be trained, each with another trial in its place."""

    @property
    def ended(self) -> int:
        """Trials that will not run again."""
        return self.finished + self.pruned + self.failed + self.skipped
