"""Track the attempts at one trial: their fencing token, progress and consecutive losses of the process."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from orchestrator.ledger.events import Event, EventKind
from orchestrator.trials import DeathCause, Outcome, OutcomeKind
from search_spaces.wording import amount

MAX_KILLS = 10
"""Number of externally caused deaths after which a trial waits until another trial makes progress.

If no other trial makes progress, the sweep stops.
"""

_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class Attempts:
    """State of all attempts at one trial, updated from the trial's events in order."""

    phase: str
    token: int = 0
    """Fencing token of the newest attempt, the only one that may write; 0 before the first."""
    num_deaths: int = 0
    """Process deaths caused by the trial since its last progress (new measurement or checkpoint)."""
    step: int = -1
    """Step of the newest measurement."""
    last_checkpoint_step: int = -1
    """Step of the newest checkpoint."""
    last_activity_at: float = 0.0
    """Unix time in seconds of the newest start or report."""
    attributes: Mapping[str, str] = field(default_factory=lambda: _NO_ATTRIBUTES)
    """Text attributes that the trial reported."""
    ended: OutcomeKind | None = None
    """Final outcome of the trial; None while the trial is open."""
    retry_checkpoint_step: int | None = None
    """Step of a failed trial's checkpoint that is retained for a retry."""

    @property
    def keeps_checkpoints(self) -> bool:
        """Return whether the trial itself or its posthoc trials may read its checkpoints again."""
        confirmed = self.phase == "confirm" and self.ended is OutcomeKind.FINISHED
        return self.ended is None or confirmed or self.retry_checkpoint_step is not None

    def apply(self, event: Event) -> bool:
        """Apply an event that follows the trial's `asked` event; return whether it is progress."""
        has_progressed = False
        if event.kind in {EventKind.STARTED, EventKind.MEASURED}:
            self.last_activity_at = event.at
        if event.kind is EventKind.STARTED:
            self.token = event.payload["token"]
        elif event.kind is EventKind.MEASURED:
            self.step = event.payload["step"]
            has_progressed = True
        elif event.kind is EventKind.CHECKPOINTED and event.payload["step"] > self.last_checkpoint_step:
            self.last_checkpoint_step = event.payload["step"]
            has_progressed = True
        elif event.kind is EventKind.ATTRIBUTES:
            self.attributes = {**self.attributes, **event.payload}
        elif event.kind is EventKind.ENDED:
            kind = OutcomeKind(event.payload["kind"])
            self.ended, self.retry_checkpoint_step = (
                kind if kind.is_final else None,
                event.payload.get("saved"),
            )
            self.num_deaths += bool(event.payload.get("lost")) and not event.payload.get("outside")
            return kind.is_final
        elif event.kind is EventKind.RETRIED:
            self.step = self.last_checkpoint_step = event.payload["step"]
            self.num_deaths, self.ended, self.retry_checkpoint_step = 0, None, None
            self.attributes = {}
        if has_progressed:
            self.num_deaths = 0
        return has_progressed

    def to_json(self) -> list[Any]:
        """Return the state as a list of JSON values, in the order of the fields."""
        values = [getattr(self, field.name) for field in fields(self)]
        return [dict(value) if isinstance(value, Mapping) else value for value in values]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> "Attempts":
        """Return the attempts from the values that `to_json` returned."""
        attempts = cls(*values)
        attempts.phase, attempts.attributes = (
            sys.intern(attempts.phase),
            attempts.attributes or _NO_ATTRIBUTES,
        )
        attempts.ended = attempts.ended and OutcomeKind(attempts.ended)
        return attempts

    def outcome_after_death(
        self, subject: str, reason: str, retries: int, cause: DeathCause = DeathCause.TRIAL
    ) -> Outcome:
        """Return the outcome of the trial after its process has died once more.

        Only consecutive deaths count, without a new measurement or checkpoint between them. A trial that
        repeatedly kills its worker at the same step makes no progress, while a trial that makes progress will
        end. Deaths from outside do not count, see `ExternalKills`.

        Args:
            subject: Name of the process in the message.
            reason: Description of the death.
            retries: Number of deaths after which the trial is started again.
            cause: Cause of the death.

        Returns:
            `STOPPED` if the trial may be started again, else the outcome of the failure.
        """
        if cause is DeathCause.OUTSIDE:
            return Outcome(OutcomeKind.STOPPED, f"{subject} died from a cause outside the trial: {reason}")
        losses, max_losses = self.num_deaths + 1, retries + 1
        message = f"{subject} died, time {losses} of at most {max_losses} without progress: {reason}"
        failure = OutcomeKind.OUT_OF_MEMORY if cause is DeathCause.MEMORY else OutcomeKind.CRASHED
        return Outcome(failure if losses >= max_losses else OutcomeKind.STOPPED, message)


class ExternalKills:
    """Number of externally caused deaths of each trial, since the last progress of the sweep in this session.

    Progress is a new measurement or checkpoint, or the end of a trial.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}

    def add(self, trial_id: str, reason: str) -> None:
        """Count an externally caused death of the trial's process."""
        self._counts[trial_id] += 1
        self._reasons[trial_id] = reason

    def clear(self) -> None:
        """Reset the counts after progress of the sweep."""
        self._counts.clear()

    def blocked_trials(self) -> dict[str, str]:
        """Return the trials that wait for progress elsewhere.

        Returns:
            By trial id, the message to report if no other trial makes progress.
        """
        return {
            trial_id: f"trial {trial_id} was killed from outside {amount(count, 'time')} while nothing else "
            f"made progress, last: {self._reasons[trial_id]}"
            for trial_id, count in self._counts.items()
            if count >= MAX_KILLS
        }
