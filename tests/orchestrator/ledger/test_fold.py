"""Records are a pure function of events."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger import events as log
from orchestrator.ledger.events import trial_from_json, trial_to_json
from orchestrator.ledger.fold import measurements, records
from orchestrator.spec.section import Objective
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD, OUTCOME_KINDS, history, measurement, trial_of
from trainables.protocol import Measurement

PLAN = make_plan(2, posthoc=({"model.x": 0.1},))
TRIAL_ID = PLAN.trials[0].trial_id


def opening_event(commit: str) -> log.Event:
    return log.claim_event(1.0, DEAD, "digest", {"commit": commit})


def test_trial_survives_json() -> None:
    for number in range(len(PLAN.trials)):
        trial = replace(trial_of(PLAN, number), source_id="other", halting_examples=8)
        assert trial_from_json(trial_to_json(trial)) == trial


def test_examples_belong_to_the_measurement_of_their_step() -> None:
    examples = ({"number": 3, "words": ["a"]},)
    last_measurement = replace(measurement(20), examples=examples)
    events = [
        log.measurement_event(1.0, TRIAL_ID, measurement(10)),
        log.measurement_event(2.0, TRIAL_ID, last_measurement),
        log.examples_event(2.0, TRIAL_ID, last_measurement),
    ]
    assert [item.examples for item in measurements(events)[TRIAL_ID]] == [(), examples]
    other_events = [
        log.examples_event(3.0, "other", last_measurement),
        log.examples_event(3.0, TRIAL_ID, replace(last_measurement, step=30)),
    ]
    assert measurements([*events, *other_events]) == measurements(events)


def test_records_of_a_whole_sweep() -> None:
    sweep_records = records(history(PLAN, seed=1), PLAN)
    assert [record.trial_id for record in sweep_records] == [trial.trial_id for trial in PLAN.trials]
    for number, (record, planned) in enumerate(zip(sweep_records, PLAN.trials, strict=True)):
        assert (record.arm, record.phase, record.number, record.seed) == (
            planned.arm,
            planned.phase,
            planned.number,
            planned.seed,
        )
        assert (record.rank, record.overrides) == (planned.rank, planned.overrides)
        assert record.sweep == PLAN.name
        assert record.outcome is OUTCOME_KINDS[number % len(OUTCOME_KINDS)]
        assert record.reason == record.outcome.sentence
        assert record.settings == PLAN.arm(planned.arm).settings
        assert record.assignment == {"model.x": number / 7}
        assert record.provenance == {"spec_digest": PLAN.spec_digest, "commit": "c0ffee", "host": "elsewhere"}
        if record.outcome is OutcomeKind.SKIPPED:
            assert (record.last, record.attempts, record.started_at) == (None, 0, None)
            continue
        assert record.last.step == 30
        assert record.started_at is not None
        assert record.ended_at is not None
        assert record.ended_at - record.started_at == pytest.approx(0.8)
    assert {record.attempts for record in sweep_records} == {0, 1, 2}


def test_stopped_trial_that_continues_is_open() -> None:
    events = [
        opening_event("old"),
        log.params_event(2.0, trial_of(PLAN, 0)),
        log.start_event(3.0, TRIAL_ID, 1),
        log.end_event(4.0, TRIAL_ID, Outcome(OutcomeKind.STOPPED, "Ctrl-C")),
        opening_event("new"),
        log.start_event(6.0, TRIAL_ID, 2),
    ]
    (stopped_record,) = records(events[:4], PLAN)
    assert (stopped_record.outcome, stopped_record.reason, stopped_record.ended_at) == (
        OutcomeKind.STOPPED,
        "Ctrl-C",
        4.0,
    )
    (resumed_record,) = records(events, PLAN)
    assert (resumed_record.outcome, resumed_record.reason, resumed_record.ended_at) == (None, "", None)
    assert (resumed_record.started_at, resumed_record.attempts) == (3.0, 2)
    assert resumed_record.provenance["commit"] == "new", "the record must describe the newest attempt"


@given(st.lists(st.floats(-5, 5), min_size=1), st.sampled_from(["max", "min"]))
def test_best_is_the_first_extreme_of_the_objective(values: list[float], goal: str) -> None:
    objectives = (Objective(metric="valid/score", goal=goal), Objective(metric="train/loss", goal="min"))
    plan = make_plan(1, objectives=objectives)
    events = [log.params_event(1.0, trial_of(plan, 0))]
    trial_id = plan.trials[0].trial_id
    events += [
        log.measurement_event(2.0, trial_id, measurement(step, value)) for step, value in enumerate(values, 1)
    ]
    (record,) = records(events, plan)
    extreme = max(values) if goal == "max" else min(values)
    assert record.best.step == 1 + values.index(extreme)
    assert record.last.step == len(values)


def test_measurement_without_the_objective_is_never_best() -> None:
    events = [
        log.params_event(1.0, trial_of(PLAN, 0)),
        log.measurement_event(2.0, TRIAL_ID, Measurement(1, 0.1, {"other": 9.0})),
        log.measurement_event(2.0, TRIAL_ID, measurement(2, 0.1)),
        log.measurement_event(2.0, TRIAL_ID, Measurement(3, 0.3, {"other": 9.0})),
    ]
    (record,) = records(events, PLAN)
    assert record.best.step == 2


def test_trial_is_judged_by_its_last_report_with_all_objectives() -> None:
    """Code may log metrics in every other report, and its last report may lack the objectives."""
    events = [
        log.params_event(1.0, trial_of(PLAN, 0)),
        log.measurement_event(2.0, TRIAL_ID, measurement(1, 0.9)),
        log.measurement_event(2.0, TRIAL_ID, measurement(2, 0.1)),
        log.measurement_event(2.0, TRIAL_ID, Measurement(3, 0.3, {"train/loss": 9.0})),
    ]
    (record,) = records(events, PLAN)
    assert record.judged_by(["valid/score"]) == (0.1,)
    assert record.judged_by(["valid/score", "valid/depth"]) == ()


def test_measurements_are_ordered_and_unique() -> None:
    events = [log.measurement_event(1.0, "a", measurement(step, step / 10)) for step in (1, 3, 2)]
    events += [log.measurement_event(2.0, "a", measurement(3, 9.0)), log.release_event(3.0, "done")]
    assert measurements(events) == {"a": [measurement(1, 0.1), measurement(2, 0.2), measurement(3, 0.3)]}
