"""`newest_events` reads only the newest measurement of each trial, and all events that are no measurement."""

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
def filled_ledger(ledger):
    lease = ledger.claim(Holder.current())
    events = list(history(PLAN, seed=3, steps=4))
    split = max(index for index, event in enumerate(events) if event.kind is EventKind.MEASURED) + 1
    last_event = events[split - 1]
    with_examples = Measurement(last_event.payload["step"], 1.0, {}, ({"number": 1},))
    ledger.append(
        [
            *events[:split],
            log.examples_event(last_event.at, last_event.trial_id, with_examples),
            *events[split:],
        ],
        lease,
    )
    return ledger


def test_newest_events_give_the_same_outcomes_as_all_events(filled_ledger):
    all_events, newest = list(filled_ledger.events()), list(filled_ledger.newest_events())
    last_measurements = {event.trial_id: event for event in all_events if event.kind is EventKind.MEASURED}
    omitted_kinds = {EventKind.MEASURED, EventKind.CHECKPOINTED, EventKind.EXAMPLES}
    assert newest == [
        event
        for event in all_events
        if event.kind not in omitted_kinds or event in last_measurements.values()
    ]
    assert len(newest) < len(all_events)
    for newest_record, full_record in zip(records(newest, PLAN), records(all_events, PLAN), strict=True):
        assert (newest_record.trial_id, newest_record.outcome, newest_record.last) == (
            full_record.trial_id,
            full_record.outcome,
            full_record.last,
        )


@pytest.mark.parametrize("step", [-1, 1])
def test_newest_measurement_of_a_retried_trial_is_that_of_the_retry(ledger, step):
    """Until the new attempt reports, its newest measurement is that of the checkpoint from which it
    continues."""
    trial, lease = trial_of(PLAN, 0), ledger.claim(Holder.current())
    name, crashed = trial.trial_id, Outcome(OutcomeKind.CRASHED, "a mistake")
    ledger.append(
        [
            log.claim_event(0.0, DEAD, "digest", {}),
            log.params_event(1.0, trial),
            log.start_event(1.0, name, 1),
        ],
        lease,
    )
    ledger.append(
        [log.measurement_event(2.0, name, measurement(1, 0.1)), log.checkpoint_event(2.0, name, 1, "x")],
        lease,
    )
    ledger.append(
        [
            log.measurement_event(3.0, name, measurement(2, 0.9)),
            log.end_event(4.0, name, crashed, saved_step=1),
        ],
        lease,
    )
    ledger.append([log.retry_event(5.0, name, step), log.start_event(5.0, name, 2)], lease)

    def last_and_best():
        (newest_record,) = records(ledger.newest_events(), PLAN)
        (full_record,) = records(ledger.events(), PLAN)
        assert (newest_record.last, newest_record.best, newest_record.outcome) == (
            full_record.last,
            full_record.best,
            full_record.outcome,
        )
        assert (full_record.outcome, full_record.attempts, full_record.retried_at) == (None, 2, (5.0,))
        return full_record.last, full_record.best

    assert last_and_best() == ((None, None) if step < 0 else (measurement(1, 0.1), measurement(1, 0.1)))
    ledger.append([log.measurement_event(6.0, name, measurement(2, 0.2))], lease)
    assert last_and_best() == (measurement(2, 0.2), measurement(2, 0.2))
    retained = [measurement(1, 0.1)] if step > 0 else []
    assert measurements(ledger.events())[name] == [*retained, measurement(2, 0.2)]


def test_changed_row_is_detected_in_the_newest_events(filled_ledger, url):
    newest_event = list(filled_ledger.newest_events())[-1]
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("UPDATE haltsweep_events SET at = at + 1 WHERE seq = ?", (newest_event.seq,))
    connection.close()
    with pytest.raises(StoreError, match=rf"event {newest_event.seq} \({newest_event.kind}"):
        list(filled_ledger.newest_events())


def test_end_of_a_trial_outside_the_plan_is_refused(filled_ledger):
    (end,) = [event for event in filled_ledger.events() if event.kind is EventKind.ENDED][:1]
    with pytest.raises(StoreError, match="f00"):
        records([replace(end, trial_id="f00")], PLAN)
