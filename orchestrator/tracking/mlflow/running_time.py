"""How long an arm's trials have run: without the time between a stop, or a last trial, and what came next."""

from dataclasses import dataclass, field

from orchestrator.tracking.mlflow.points import Point

KEY = "time/running_seconds"
"""Metric of an arm's run. MLflow's own duration is from start to end, whatever lies between."""


@dataclass(slots=True)
class RunningTime:
    """Adds up when at least one trial of an arm was running; trials side by side count once.

    Times are those of the ledger's events, Unix milliseconds.
    """

    _running: set[str] = field(default_factory=set)
    _since_ms: int = 0
    _heard_ms: int = 0
    """When a running trial was last heard of."""
    _total_ms: int = 0
    _written: list[int] = field(default_factory=list)

    def start(self, trial_id: str, at_ms: int) -> None:
        """An attempt at a trial begins."""
        if not self._running:
            self._since_ms = at_ms
        self._running.add(trial_id)
        self._heard_ms = at_ms

    def hear(self, trial_id: str, at_ms: int) -> None:
        """A trial shows that it runs."""
        if trial_id in self._running:
            self._heard_ms = at_ms

    def end(self, trial_id: str, at_ms: int) -> None:
        """A trial ends, for good or not; nothing of one that was never started."""
        self.hear(trial_id, at_ms)
        self._running.discard(trial_id)
        if not self._running:
            self._add()

    def abandon(self) -> None:
        """The process that ran the trials is gone: they ran for as long as something was heard of them."""
        self._running.clear()
        self._add()

    def points(self, at_ms: int) -> list[Point]:
        """All that they ran until now, in seconds; nothing if that was returned before."""
        if self._total_ms == (self._written or [0])[-1]:
            return []
        self._written.append(self._total_ms)
        return [Point(KEY, self._total_ms / 1000, at_ms, len(self._written) - 1)]

    def _add(self) -> None:
        self._total_ms += max(0, self._heard_ms - self._since_ms)
        self._since_ms = self._heard_ms
