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

    _running: set[str] = field(default_factory=set)
    _since_ms: int = 0
    _heard_ms: int = 0
    """Time of the last event of a running trial."""
    _total_ms: int = 0
    _written: list[int] = field(default_factory=list)

    def start(self, trial_id: str, at_ms: int) -> None:
        """Start an attempt at a trial."""
        if not self._running:
            self._since_ms = at_ms
        self._running.add(trial_id)
        self._heard_ms = at_ms

    def observe(self, trial_id: str, at_ms: int) -> None:
        """Record an event of a trial."""
        if trial_id in self._running:
            self._heard_ms = at_ms

    def end(self, trial_id: str, at_ms: int) -> None:
        """End an attempt at a trial, which may never have started."""
        self.observe(trial_id, at_ms)
        self._running.discard(trial_id)
        if not self._running:
            self._add()

    def abandon(self) -> None:
        """End all attempts at the times of their last events, since the process that ran them died."""
        self._running.clear()
        self._add()

    def points(self, at_ms: int) -> list[Point]:
        """Return the total in seconds as a point; empty if it was returned before."""
        if self._total_ms == (self._written or [0])[-1]:
            return []
        self._written.append(self._total_ms)
        return [Point(KEY, self._total_ms / 1000, at_ms, len(self._written) - 1)]

    def _add(self) -> None:
        self._total_ms += max(0, self._heard_ms - self._since_ms)
        self._since_ms = self._heard_ms
