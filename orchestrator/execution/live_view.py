"""Create snapshots of a running sweep and limit how often they are displayed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.conductor.messages import Progress
from orchestrator.conductor.outlook import RemainingWork
from orchestrator.execution.datasets import OnData
from orchestrator.execution.signals import delayed_interrupts
from orchestrator.ledger.sql.outage import OnOutage
from orchestrator.tracking.summary import ArmSummary
from orchestrator.trials import Outcome
from trainables.data.progress import Watcher

MIN_INTERVAL_S = 0.2
"""Minimum seconds between two snapshots."""
INTERVAL_FACTOR = 20
"""Minimum time between two snapshots, as a multiple of the duration of the last one.

With thousands of trials a snapshot takes longer.
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a running sweep at one moment, for display."""

    arms: tuple[Progress, ...]
    """Progress of each arm, in the order of the plan."""
    open_seconds: float
    """Seconds for which sessions had the sweep open."""
    drain_reason: str
    """Reason why no new trial is started; empty while trials are started."""
    outlook: RemainingWork = field(default_factory=RemainingWork)

    @property
    def running(self) -> int:
        """Number of trials that workers run."""
        return sum(progress.running for progress in self.arms)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks during a sweep. All except `on_outage` are called in the launching thread."""

    on_change: Callable[[Snapshot], None] = lambda _: None
    on_data: OnData = lambda *_: None
    building: Watcher = field(default_factory=Watcher)
    """Watcher of the split being built; it also reports other processes that block the build."""
    on_starting: Callable[[str], None] = lambda _: None
    """Called with a step before or after the trials, such as `starting Ray` or `ending Ray`."""
    on_open: Callable[[], None] = lambda: None
    """Called after all checks of the sweep, before the first trial."""
    on_warning: Callable[[str], None] = lambda _: None
    """Called with a warning while the sweep continues: Ray ended, or a node takes no trials."""
    on_failure: Callable[[str, Outcome], None] = lambda *_: None
    """Called with the id and outcome of a failed trial while the sweep continues."""
    on_end: Callable[[], ArmSummary | None] = lambda: None
    """Called after the last ledger write: creates reports and returns the summary of the arms for MLflow."""
    on_tracking: Callable[[str], None] = lambda _: None
    """Called after the trials have ended, with the entries that MLflow still lacks."""
    on_outage: OnOutage = lambda _: None
    """Called when the database of the ledger becomes unreachable or reachable."""


@dataclass(slots=True)
class ThrottledView:
    """View that limits the rate of displayed snapshots. Skipped changes are displayed later."""

    take_snapshot: Callable[[], Snapshot]
    display: Callable[[Snapshot], None]
    begin: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    _snapshot_at: float = float("-inf")
    _snapshot_s: float = 0.0
    """Seconds that the last snapshot took."""
    _has_changed: bool = False

    def show(self) -> None:
        """Display a snapshot now."""
        self._snapshot_at = self.clock()
        self._display(self.take_snapshot())

    def record_change(self) -> None:
        """Record that the sweep changed, and display the change if the last snapshot is old enough."""
        self.begin()
        self._has_changed = True
        self.show_changes()

    def show_changes(self) -> None:
        """Display recorded changes if the last snapshot is old enough; must be called often."""
        started_at = self.clock()
        if self._has_changed and started_at - self._snapshot_at >= max(
            MIN_INTERVAL_S, INTERVAL_FACTOR * self._snapshot_s
        ):
            snapshot = self.take_snapshot()
            self._snapshot_at = self.clock()
            self._snapshot_s = self._snapshot_at - started_at
            self._display(snapshot)

    def _display(self, snapshot: Snapshot) -> None:
        self._has_changed = False
        with delayed_interrupts():
            self.display(snapshot)
