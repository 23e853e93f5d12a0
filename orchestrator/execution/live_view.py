"""What people see of a sweep while it runs, shown no more often than they can read."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.conductor.messages import Progress
from orchestrator.conductor.outlook import Outlook
from orchestrator.execution.datasets import OnData
from orchestrator.execution.signals import undisturbed
from orchestrator.ledger.sql.outage import OnOutage
from orchestrator.tracking.summary import ArmSummary
from orchestrator.trials import Outcome
from trainables.data.progress import Watcher

VIEW_S = 0.2
"""Least time between two snapshots."""
LOOK_SHARE = 20
"""A look may take so many times less than the time to the next: of thousands of trials it takes longer."""
SETTLED_S = 1.0
"""Between the end of a trial and the start of the next one in its slot nothing is shown, for at most so
long: most changes are ends, and views drawn right after them would show a slot free that never is."""
GAP_LOOK_S = 0.04
"""Least time between two looks at such a slot."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A running sweep at one moment, for people to watch."""

    arms: tuple[Progress, ...]
    """In the order of the plan."""
    held_open_s: float
    """Seconds the sweep was held open so far, over all sessions."""
    draining: str
    """Why nothing new is started; empty while something is."""
    outlook: Outlook = field(default_factory=Outlook)

    @property
    def running(self) -> int:
        """Trials that workers have."""
        return sum(each.running for each in self.arms)

    @property
    def waiting(self) -> int:
        """Trials that neither run nor have ended."""
        return sum(each.planned - each.ended - each.running for each in self.arms)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Whom to tell what while a sweep runs; all but `on_outage` are called in the launching thread."""

    on_change: Callable[[Snapshot], None] = lambda _: None
    on_data: OnData = lambda *_: None
    building: Watcher = field(default_factory=Watcher)
    """How far the split is that is being built, and who is waited for."""
    on_starting: Callable[[str], None] = lambda _: None
    """What is begun before trials can run: `starting Ray`."""
    on_trouble: Callable[[str], None] = lambda _: None
    """Something went wrong, and the sweep goes on: Ray ended, or a node takes no trials."""
    on_failure: Callable[[str, Outcome], None] = lambda *_: None
    """A trial failed, by its id, and the sweep goes on."""
    on_end: Callable[[], ArmSummary | None] = lambda: None
    """Nothing more is written into the ledger: reports, and returns what MLflow shall show of the arms."""
    on_tracking: Callable[[str], None] = lambda _: None
    """The trials have ended, and MLflow is waited for: what it still lacks."""
    on_outage: OnOutage = lambda _: None
    """The ledger's database is away, or back."""


@dataclass(slots=True)
class ThrottledView:
    """Shows changes no more often than people can read; what was passed over is shown a little later."""

    look: Callable[[], Snapshot]
    display: Callable[[Snapshot], None]
    begin: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    _looked_at: float = float("-inf")
    _look_s: float = 0.0
    """How long the last look took."""
    _stale: bool = False
    _running: int = 0
    """As last shown."""
    _gap_since: float | None = None

    def show(self) -> None:
        """At once."""
        self._looked_at = self.clock()
        self._display(self.look())

    def changed(self) -> None:
        """There is something new."""
        self.begin()
        self._stale = True
        self.catch_up()

    def catch_up(self) -> None:
        """Called often."""
        began = self.clock()
        least = VIEW_S if self._gap_since is None else GAP_LOOK_S
        if self._stale and began - self._looked_at >= max(least, LOOK_SHARE * self._look_s):
            snapshot = self.look()
            self._looked_at = self.clock()
            self._look_s = self._looked_at - began
            if not self._in_between(snapshot):
                self._display(snapshot)

    def _in_between(self, snapshot: Snapshot) -> bool:
        """Whether a trial has ended and the next one has not begun, though there is one."""
        now = self.clock()
        if snapshot.running >= self._running or snapshot.draining or not snapshot.waiting:
            self._gap_since = None
            return False
        if self._gap_since is None:
            self._gap_since = now
        return now - self._gap_since < SETTLED_S

    def _display(self, snapshot: Snapshot) -> None:
        self._stale, self._gap_since = False, None
        self._running = snapshot.running
        with undisturbed():
            self.display(snapshot)
