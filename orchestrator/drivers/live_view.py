"""What people see of a sweep while it runs, told no more often than they can read."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.conductor.messages import Progress
from orchestrator.drivers.datasets import OnData
from orchestrator.drivers.signals import undisturbed
from orchestrator.ledger.outage import OnOutage
from trainables.data.progress import Watcher

VIEW_S = 0.2
"""Least time between two snapshots."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A running sweep at one moment, for people to watch."""

    arms: tuple[Progress, ...]
    """In the order of the plan."""
    held_open_s: float
    """Seconds the sweep was held open so far, over all sessions."""
    draining: str
    """Why nothing new is started; empty while something is."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Whom to tell what while a sweep runs; all but `on_outage` are called in the launching thread."""

    on_change: Callable[[Snapshot], None] = lambda _: None
    on_data: OnData = lambda *_: None
    building: Watcher = field(default_factory=Watcher)
    """How far the split is that is being built, and who is waited for."""
    on_trouble: Callable[[str], None] = lambda _: None
    """Something went wrong, and the sweep goes on: Ray ended, or a node takes no trials."""
    on_tracking: Callable[[str], None] = lambda _: None
    """The trials have ended, and MLflow is waited for: what it still lacks."""
    on_outage: OnOutage = lambda _: None
    """The ledger's database is away, or back."""


@dataclass(slots=True)
class ThrottledView:
    """Shows changes no more often than people can read; what was passed over is shown a little later."""

    display: Callable[[], None]
    begin: Callable[[], None]
    _shown_at: float = 0.0
    _stale: bool = False

    def show(self) -> None:
        """At once."""
        self._stale, self._shown_at = False, time.monotonic()
        with undisturbed():
            self.display()

    def changed(self) -> None:
        """There is something new."""
        self.begin()
        self._stale = True
        self.catch_up()

    def catch_up(self) -> None:
        """Called often."""
        if self._stale and time.monotonic() - self._shown_at >= VIEW_S:
            self.show()
