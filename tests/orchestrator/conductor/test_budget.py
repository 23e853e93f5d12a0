from dataclasses import replace

from orchestrator.conductor.budget import WallClock, budget_end
from orchestrator.ledger.events import BUDGET, Event, EventKind, closed
from orchestrator.plan.types import Extension
from tests.support.specs.plans import make_plan


def held(*events, now):
    clock = WallClock()
    for kind, at in events:
        clock.apply(Event(kind, at))
    return clock.seconds(now)


def test_nothing_was_held_before_the_first_session():
    assert held(now=99.0) == 0.0


def test_an_open_session_counts_until_now():
    assert held((EventKind.OPENED, 10.0), now=25.0) == 15.0


def test_time_between_sessions_does_not_count():
    events = [(EventKind.OPENED, 0.0), (EventKind.CLOSED, 5.0), (EventKind.OPENED, 1000.0)]
    assert held(*events, now=1002.0) == 7.0


def test_a_killed_session_counts_until_its_last_event():
    events = [(EventKind.OPENED, 0.0), (EventKind.STARTED, 3.0), (EventKind.OPENED, 50.0)]
    assert held(*events, now=51.0) == 4.0


def test_a_clock_that_was_set_back_takes_nothing_away():
    assert held((EventKind.OPENED, 10.0), now=5.0) == 0.0


def test_a_budget_ends_a_sweep_until_it_is_extended():
    why = "the budget of 1 device hours is used up"
    last, plan = closed(9.0, BUDGET, why), make_plan(1)
    assert budget_end(last, plan) == why
    assert budget_end(closed(9.0, BUDGET), plan) == "the budget is used up", "of an older version"
    assert not any(
        budget_end(each, plan) for each in (None, closed(9.0, "done"), Event(EventKind.OPENED, 9.0))
    )
    before, since = (Extension(at, "extend", "digest", (), (), (), {}) for at in (8.0, 10.0))
    assert budget_end(last, replace(plan, extended=(before,))) == why
    assert not budget_end(last, replace(plan, extended=(before, since)))


def test_an_extension_counts_whatever_the_clocks_said():
    why, plan = "the budget of 1 device hours is used up", make_plan(1)
    ahead = 40 * 24 * 3600.0
    known = closed(ahead, BUDGET, why, extensions=1)
    first, second = (Extension(at, "extend", "digest", (), (), (), {}) for at in (2 * ahead, 10.0))
    assert budget_end(known, replace(plan, extended=(first,))) == why
    assert not budget_end(known, replace(plan, extended=(first, second)))
