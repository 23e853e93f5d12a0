"""The quick look at a log: the newest measurement of each trial, and all that is no measurement."""

import sqlite3

import pytest

from orchestrator.errors import StoreError
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.fold import records
from orchestrator.ledger.lease import Holder
from tests.support.histories import history
from tests.support.plans import make_plan

PLAN = make_plan(2, trials_per_arm=3)


@pytest.fixture
def filled(ledger):
    lease = ledger.claim(Holder.current())
    ledger.append(list(history(PLAN, seed=3, steps=4)), lease)
    return ledger


def test_the_newest_of_each_trial_tells_as_much_as_all_events(filled):
    every, newest = list(filled.events()), list(filled.newest())
    last = {event.trial_id: event for event in every if event.kind is EventKind.MEASURED}
    left_out = {EventKind.MEASURED, EventKind.CHECKPOINTED}
    assert newest == [event for event in every if event.kind not in left_out or event in last.values()]
    assert len(newest) < len(every)
    for quick, full in zip(records(newest, PLAN), records(every, PLAN), strict=True):
        assert (quick.trial_id, quick.outcome, quick.last) == (full.trial_id, full.outcome, full.last)


def test_when_ended_trials_began_can_be_left_out(filled):
    quick = records(filled.newest(attempts=False), PLAN)
    for short, whole in zip(quick, records(filled.newest(), PLAN), strict=True):
        ended = whole.outcome is not None and whole.outcome.final
        assert short.attempts == (0 if ended else whole.attempts)
        assert (short.trial_id, short.outcome, short.last) == (whole.trial_id, whole.outcome, whole.last)
    assert any(each.attempts == 0 for each in quick)


def test_a_changed_row_shows_in_the_quick_look_too(filled, url):
    seen = list(filled.newest())[-1]
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("UPDATE haltsweep_events SET at = at + 1 WHERE seq = ?", (seen.seq,))
    connection.close()
    with pytest.raises(StoreError, match=rf"event {seen.seq} \({seen.kind}.*is not as it was written"):
        list(filled.newest())
