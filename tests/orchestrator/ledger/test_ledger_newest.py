"""The quick look at a log: the newest measurement of each trial, and all that is no measurement."""

import sqlite3
from dataclasses import replace

import pytest

from orchestrator.errors import StoreError
from orchestrator.ledger import events as log
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.fold import measurements, records
from orchestrator.ledger.lease import Holder
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD, history, measurement, trial_of
from trainables.protocol import Measurement

PLAN = make_plan(2, trials_per_arm=3)


@pytest.fixture
def filled(ledger):
    lease = ledger.claim(Holder.current())
    events = list(history(PLAN, seed=3, steps=4))
    place = max(at for at, event in enumerate(events) if event.kind is EventKind.MEASURED) + 1
    last = events[place - 1]
    shown = Measurement(last.payload["step"], 1.0, {}, ({"number": 1},))
    ledger.append([*events[:place], log.kept(last.at, last.trial_id, shown), *events[place:]], lease)
    return ledger


def test_the_newest_of_each_trial_tells_as_much_as_all_events(filled):
    every, newest = list(filled.events()), list(filled.newest())
    last = {event.trial_id: event for event in every if event.kind is EventKind.MEASURED}
    left_out = {EventKind.MEASURED, EventKind.CHECKPOINTED, EventKind.KEPT}
    assert newest == [event for event in every if event.kind not in left_out or event in last.values()]
    assert len(newest) < len(every)
    for quick, full in zip(records(newest, PLAN), records(every, PLAN), strict=True):
        assert (quick.trial_id, quick.outcome, quick.last) == (full.trial_id, full.outcome, full.last)


@pytest.mark.parametrize("step", [-1, 1])
def test_of_a_retried_trial_the_quick_look_tells_what_counts(ledger, step):
    """Until its new attempt has reported, that is what stood at the checkpoint it goes on from."""
    trial, lease = trial_of(PLAN, 0), ledger.claim(Holder.current())
    name, crashed = trial.trial_id, Outcome(OutcomeKind.CRASHED, "a mistake")
    ledger.append(
        [log.opened(0.0, DEAD, "digest", {}), log.asked(1.0, trial), log.started(1.0, name, 1)], lease
    )
    ledger.append([log.measured(2.0, name, measurement(1, 0.1)), log.checkpointed(2.0, name, 1, "x")], lease)
    ledger.append(
        [log.measured(3.0, name, measurement(2, 0.9)), log.ended(4.0, name, crashed, saved_step=1)], lease
    )
    ledger.append([log.retried(5.0, name, step), log.started(5.0, name, 2)], lease)

    def last():
        (quick,) = records(ledger.newest(), PLAN)
        (full,) = records(ledger.events(), PLAN)
        assert (quick.last, quick.best, quick.outcome) == (full.last, full.best, full.outcome)
        assert (full.outcome, full.attempts, full.retried) == (None, 2, (5.0,))
        return full.last, full.best

    assert last() == ((None, None) if step < 0 else (measurement(1, 0.1), measurement(1, 0.1)))
    ledger.append([log.measured(6.0, name, measurement(2, 0.2))], lease)
    assert last() == (measurement(2, 0.2), measurement(2, 0.2))
    kept = [measurement(1, 0.1)] if step > 0 else []
    assert measurements(ledger.events())[name] == [*kept, measurement(2, 0.2)]


def test_a_changed_row_shows_in_the_quick_look_too(filled, url):
    seen = list(filled.newest())[-1]
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("UPDATE haltsweep_events SET at = at + 1 WHERE seq = ?", (seen.seq,))
    connection.close()
    with pytest.raises(StoreError, match=rf"event {seen.seq} \({seen.kind}.*is not as it was written"):
        list(filled.newest())


def test_an_end_of_a_trial_that_is_not_of_the_plan_is_refused(filled):
    (end,) = [each for each in filled.events() if each.kind is EventKind.ENDED][:1]
    with pytest.raises(StoreError, match="must hold trials of its plan, and f00"):
        records([replace(end, trial_id="f00")], PLAN)
