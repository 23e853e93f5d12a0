"""The display of a running sweep is updated at a limited rate."""

from orchestrator.conductor.messages import Progress
from orchestrator.execution.live_view import INTERVAL_FACTOR, MIN_INTERVAL_S, Snapshot, ThrottledView
from tests.support.processes.logs import Clock


def test_snapshots_are_displayed_at_a_limited_rate_and_the_last_change_is_displayed():
    clock, displayed, progress, snapshot_s = Clock(), [], [0], 0.1

    def take_snapshot():
        clock.now += snapshot_s
        return Snapshot((Progress("a", 1000, 2, progress[0], 0, 0, None, 0.0),), 0.0, "")

    view = ThrottledView(
        take_snapshot, lambda snapshot: displayed.append(snapshot.arms[0].ended), lambda: None, clock=clock
    )
    for number in range(1, 1001):
        progress[0] = number
        clock.now += 0.01
        view.record_change()
    period_s = max(MIN_INTERVAL_S, INTERVAL_FACTOR * snapshot_s)
    assert 2 <= len(displayed) <= clock.now / period_s + 1
    clock.now += period_s
    view.show_changes()
    assert displayed[-1] == 1000
