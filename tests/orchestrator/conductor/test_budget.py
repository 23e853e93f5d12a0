from dataclasses import replace

from orchestrator.conductor.budget import WallClock, budget_end
from orchestrator.ledger.events import BUDGET_REASON, Event, EventKind, release_event
from orchestrator.plan.types import Extension
from tests.support.specs.plans import make_plan


def session_seconds(*events, now):
    clock = WallClock()
    for kind, time in events:
        clock.apply(Event(kind, time))
    return clock.seconds(now)


def test_time_between_sessions_does_not_count():
    events = [(EventKind.OPENED, 0.0), (EventKind.CLOSED, 5.0), (EventKind.OPENED, 1000.0)]
    assert session_seconds(*events, now=1002.0) == 7.0


def test_killed_session_counts_until_its_last_event():
    events = [(EventKind.OPENED, 0.0), (EventKind.STARTED, 3.0), (EventKind.OPENED, 50.0)]
    assert session_seconds(*events, now=51.0) == 4.0


def test_clock_that_was_set_back_subtracts_no_time():
    assert session_seconds((EventKind.OPENED, 10.0), now=5.0) == 0.0


def test_exhausted_budget_ends_the_sweep_until_an_extension():
    reason = "the budget of 1 device hours is used up"
    closing_event, plan = release_event(9.0, BUDGET_REASON, reason), make_plan(1)
    assert budget_end(closing_event, plan) == reason
    assert budget_end(release_event(9.0, BUDGET_REASON), plan), "events of older versions have no text"
    assert not any(
        budget_end(event, plan) for event in (None, release_event(9.0, "done"), Event(EventKind.OPENED, 9.0))
    )
    early_extension, late_extension = (
        Extension(time, "extend", "digest", (), (), (), {}) for time in (8.0, 10.0)
    )
    assert budget_end(closing_event, replace(plan, extended=(early_extension,))) == reason
    assert not budget_end(closing_event, replace(plan, extended=(early_extension, late_extension)))


def test_extension_counts_despite_wrong_clocks():
    reason, plan = "the budget of 1 device hours is used up", make_plan(1)
    future = 40 * 24 * 3600.0
    closing_event = release_event(future, BUDGET_REASON, reason, extensions=1)
    first_extension, second_extension = (
        Extension(time, "extend", "digest", (), (), (), {}) for time in (2 * future, 10.0)
    )
    assert budget_end(closing_event, replace(plan, extended=(first_extension,))) == reason
    assert not budget_end(closing_event, replace(plan, extended=(first_extension, second_extension)))
