"""When people are shown a sweep: not between the end of a trial and the start of the next one."""

from dataclasses import dataclass, field

from orchestrator.conductor.messages import Progress
from orchestrator.execution.live_view import LOOK_SHARE, SETTLED_S, VIEW_S, Snapshot, ThrottledView
from tests.support.processes.logs import Clock


@dataclass
class Sweep:
    """Ten trials, two at a time."""

    running: int = 0
    ended: int = 0
    draining: str = ""
    clock: Clock = field(default_factory=Clock)
    seen: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self):
        look = lambda: Snapshot(  # noqa: E731
            (Progress("a", 10, self.running, self.ended, 0, 0, None, 0.0),), 0.0, self.draining
        )
        see = lambda shown: self.seen.append((shown.arms[0].running, shown.arms[0].ended))  # noqa: E731
        self.view = ThrottledView(look, see, lambda: None, clock=self.clock)

    def tell(self, running, ended, after=2 * VIEW_S):
        self.clock.now += after
        self.running, self.ended = running, ended
        self.view.changed()


def test_a_slot_that_is_free_for_a_moment_is_never_shown():
    sweep = Sweep()
    sweep.tell(2, 0)
    for ended in range(1, 9):
        sweep.tell(1, ended)
        sweep.tell(2, ended, after=0.05)
    assert {running for running, _ in sweep.seen} == {2}
    assert sweep.seen[-1][1] == 8


def test_a_slot_that_stays_free_is_shown():
    """The next trial waits for one that runs, as the first of a confirm phase does."""
    sweep = Sweep()
    sweep.tell(2, 0)
    sweep.tell(1, 1)
    sweep.clock.now += SETTLED_S / 2
    sweep.view.catch_up()
    assert sweep.seen == [(2, 0)]
    sweep.clock.now += SETTLED_S / 2
    sweep.view.catch_up()
    assert sweep.seen == [(2, 0), (1, 1)]


def test_the_last_trials_end_one_by_one_in_sight():
    sweep = Sweep()
    for running, ended in ((2, 8), (1, 9), (0, 10)):
        sweep.tell(running, ended)
    assert sweep.seen == [(2, 8), (1, 9), (0, 10)]


def test_while_it_stops_slots_are_free_for_good():
    sweep = Sweep()
    sweep.tell(2, 0)
    sweep.draining = "asked to"
    sweep.tell(1, 0)
    assert sweep.seen == [(2, 0), (1, 0)]


def test_a_look_that_takes_long_is_taken_seldom():
    """Of a sweep of thousands of trials, each of whose events asks for one."""
    sweep, looks = Sweep(), []
    look = sweep.view.look

    def slow():
        looks.append(sweep.clock.now)
        sweep.clock.now += 0.1
        return look()

    sweep.view.look = slow
    for _ in range(1000):
        sweep.tell(2, 0, after=0.01)
    assert len(looks) <= 10.0 / (LOOK_SHARE * 0.1) + 1
