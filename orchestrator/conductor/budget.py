"""How long a sweep was held open, summed over its sessions; the time between sessions does not count."""

from orchestrator.ledger.events import Event, EventKind


class HeldOpen:
    """Feed it the events of the ledger in order."""

    def __init__(self) -> None:
        self._earlier_s = 0.0
        self._opened_at: float | None = None
        self._last_at = 0.0

    def saw(self, event: Event) -> None:
        """A session lasts from its `opened` to its last event: a killed process writes no `closed`."""
        if event.kind is EventKind.OPENED:
            self._earlier_s = self.seconds(self._last_at)
            self._opened_at = event.at
        self._last_at = event.at

    def seconds(self, now: float) -> float:
        """Unix time `now` falls in the newest session."""
        return self._earlier_s + (max(now - self._opened_at, 0.0) if self._opened_at is not None else 0.0)

    def used_up(self, hours: float | None, now: float) -> str:
        """Why nothing more may be started with a budget of `hours`; empty while it lasts, and for None."""
        if hours is None or self.seconds(now) < hours * 3600:
            return ""
        # A plan is fixed at launch: a resumed sweep has the same budget.
        return (
            f"the budget of {hours:g} hours of wall clock is used up; launch the spec under another name "
            "with a larger one for more"
        )
