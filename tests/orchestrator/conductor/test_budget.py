from orchestrator.conductor.budget import HeldOpen
from orchestrator.ledger.events import Event, EventKind


def held(*events, now):
    clock = HeldOpen()
    for kind, at in events:
        clock.saw(Event(kind, at))
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
