"""Compute how long the trials of an arm ran, without the time between two sessions."""

from dataclasses import dataclass, field

from orchestrator.tracking.mlflow.points import Point

KEY = "time/running_seconds"
"""Metric of an arm's run. MLflow's own duration is the time from its start to its end."""


@dataclass(slots=True)
class RunningTime:
    """Sum of the time in which at least one trial of an arm was running.

    Times are those of events in the ledger, in Unix milliseconds.
    """

    running: set[str] = field(default_factory=set)
    """Ids of the running trials; empty after the death of the process that ran them."""
    _last_ms: int = 0
    _total_ms: int = 0
    _written: list[int] = field(default_factory=list)

    def observe(self, at_ms: int) -> None:
        """Add the time since the last event if a trial was running."""
        passed_ms = max(0, at_ms - self._last_ms)  # the clock may be set back
        self._total_ms += passed_ms if self.running else 0
        self._last_ms += passed_ms

    def points(self, at_ms: int) -> list[Point]:
        """Return the total in seconds as a point; empty if it was returned before."""
        if self._total_ms == (self._written or [0])[-1]:
            return []
        self._written.append(self._total_ms)
        return [Point(KEY, self._total_ms / 1000, at_ms, len(self._written) - 1)]
