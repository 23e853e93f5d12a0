"""The display of a running sweep is updated at a limited rate."""

import pytest

from orchestrator.conductor.messages import Progress
from orchestrator.execution.live_view import LOOK_SHARE, VIEW_S, Snapshot, ThrottledView
from tests.support.processes.logs import Clock


@pytest.mark.parametrize("look_s", [0.0, 0.1])
def test_snapshots_are_displayed_at_a_limited_rate_and_the_last_change_is_displayed(look_s):
    clock, displayed, progress = Clock(), [], [0]

    def look():
        clock.now += look_s
        return Snapshot((Progress("a", 1000, 2, progress[0], 0, 0, None, 0.0),), 0.0, "")

    view = ThrottledView(look, lambda shown: displayed.append(shown.arms[0].ended), lambda: None, clock=clock)
    for number in range(1, 1001):
        progress[0] = number
        clock.now += 0.01
        view.changed()
    period_s = max(VIEW_S, LOOK_SHARE * look_s)
    assert 2 <= len(displayed) <= clock.now / period_s + 1
    clock.now += period_s
    view.catch_up()
    assert displayed[-1] == 1000
