"""`haltsweep status` shows state, counts and failures; the tests write the ledgers by hand."""

import json
import re
from contextlib import contextmanager
from dataclasses import replace

import pytest

from orchestrator.cli.display.progress import MAX_REASON_LENGTH
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.finished import with_test_scores as with_test_metrics
from tests.support.sweeps.histories import DEAD, history, measurement, trial_of
from tests.support.sweeps.launched import launched

PLAN = make_plan(2, trials_per_arm=6, seeds=())


@pytest.fixture
def sweep(tmp_path):
    return launched(tmp_path, PLAN)


@contextmanager
def hold_lease(sweep, *events):
    """Hold the lease of the sweep and write `events`."""
    with Ledger.open(sweep.ledger_url, "synthetic") as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append(list(events), lease)
        yield
        ledger.release(lease)


def trial_events(number, outcome=None, reason="because", steps=1):
    """Yield the events of a trial, with its end if it has an `outcome`."""
    trial = trial_of(PLAN, number)
    yield log.params_event(1.0, trial)
    yield log.start_event(2.0, trial.trial_id, 1)
    for step in range(1, steps + 1):
        yield log.measurement_event(2.0 + step, trial.trial_id, measurement(step))
    if outcome is not None:
        yield log.end_event(100.0, trial.trial_id, Outcome(outcome, reason))


def read_status(haltsweep, code=0):
    """Return the state of the sweep, and the ended, running and pruned trials of all arms together."""
    result = haltsweep("status", "synthetic", "--json")
    assert result.code == code
    status = json.loads(result.out)
    return status["state"], *(
        sum(arm[key] for arm in status["arms"]) for key in ("ended", "running", "pruned")
    )


def test_status_reports_an_exhausted_budget_and_its_remedy(haltsweep, sweep):
    reason = "the budget of 1 device hours is used up"
    with hold_lease(
        sweep, *trial_events(0, OutcomeKind.FINISHED), log.release_event(9.0, log.BUDGET_REASON, reason)
    ):
        assert reason not in haltsweep("status", "synthetic").out
    output = haltsweep("status", "synthetic").out
    assert "`haltsweep extend synthetic budget.LIMIT=MORE`" in output
    assert "resume" not in output
    assert json.loads(haltsweep("status", "synthetic", "--json").out)["spent"] == reason
    assert reason in haltsweep("report", "synthetic").err


def test_status_of_a_running_and_a_killed_sweep(haltsweep, sweep):
    with hold_lease(sweep, *trial_events(0, OutcomeKind.FINISHED), *trial_events(1)):
        result = haltsweep("status", "synthetic")
        status = json.loads(haltsweep("status", "synthetic", "--json").out)
        assert re.search(r"arm-0 search 1, .*\d+ days +1/4 ", result.out)
        assert [row["number"] for row in status["running"]] == [1]
        assert "resume" not in result.out
        assert read_status(haltsweep) == ("running", 1, 1, 0)
    assert read_status(haltsweep) == ("unfinished", 1, 0, 0)
    assert "haltsweep resume synthetic" in haltsweep("status", "synthetic").out


def test_status_of_a_failed_sweep(haltsweep, sweep):
    ends = [event for number in range(12) for event in trial_events(number, OutcomeKind.CRASHED)]
    with hold_lease(sweep, *ends):
        assert haltsweep("status", "synthetic").code == 0, "somebody runs it"
    result = haltsweep("status", "synthetic")
    assert result.code == 1
    assert "resume" not in result.out
    assert read_status(haltsweep, code=1) == ("failed", 12, 0, 0)


def test_status_lists_failures_with_reasons(haltsweep, sweep):
    long_reason = "[bold]" + "x" * 1000
    with hold_lease(
        sweep,
        *trial_events(0, OutcomeKind.OUT_OF_MEMORY, "no room for the batch"),
        *trial_events(1, OutcomeKind.CRASHED, f"{long_reason}\nTraceback (most recent call last):\n  File 1"),
        *trial_events(2, OutcomeKind.PRUNED),
    ):
        pass
    output = haltsweep("status", "synthetic").out
    first_trial, second_trial = (PLAN.trials[number].trial_id for number in (0, 1))
    assert f"failed: arm-0 search 0 ({first_trial}): out_of_memory: no room for the batch\n" in output
    assert (
        f"failed: arm-0 search 1 ({second_trial}): crashed: {long_reason[:MAX_REASON_LENGTH]}...\n" in output
    )
    assert "Traceback" not in output


def test_trials_option_lists_every_trial(haltsweep, sweep):
    with hold_lease(sweep, *trial_events(0, OutcomeKind.FINISHED, steps=3), *trial_events(7)):
        output = haltsweep("status", "synthetic", "--trials").out
        trials = json.loads(haltsweep("status", "synthetic", "--json").out)["trials"]
    assert [trial["trial_id"] for trial in trials] == [PLAN.trials[number].trial_id for number in (0, 7)]
    assert all(trial["trial_id"] in output for trial in trials)
    assert trials[0]["metrics"] == dict(measurement(3).metrics)
    assert (trials[1]["outcome"], trials[1]["reason"], trials[1]["attempts"]) == (None, "", 1)


def test_status_counts_skipped_trials_by_reason(haltsweep, sweep):
    finished_trials = [event for number in range(4) for event in trial_events(number, OutcomeKind.FINISHED)]
    remaining_trials = [trial_of(PLAN, number) for number in range(4, 12)]
    skip_events = [log.params_event(200.0, trial) for trial in remaining_trials]
    skip = Outcome(OutcomeKind.SKIPPED, "the target is reached")
    skip_events += [log.end_event(200.0, trial_events.trial_id, skip) for trial_events in remaining_trials]
    with hold_lease(sweep, *finished_trials, *skip_events):
        pass
    result = haltsweep("status", "synthetic")
    assert result.code == 0
    assert "the target is reached (8 " in result.out
    status = json.loads(haltsweep("status", "synthetic", "--json").out)
    assert sum(arm["skipped"] for arm in status["arms"]) == 8


def test_status_shows_verdicts_only_of_a_complete_report(haltsweep, tmp_path):
    """Reports of `report --watch` or before `extend` may lack trials."""
    arms = [make_arm("arm-0"), replace(make_arm("arm-1"), reference="arm-0")]
    plan = make_plan(arms, seeds=(1, 2, 3))
    folder, events = launched(tmp_path, plan), list(with_test_metrics(plan, history(plan, 0)))
    for half in (events[: len(events) // 2], events[len(events) // 2 :]):
        with Ledger.open(folder.ledger_url, plan.name) as ledger:
            lease = ledger.claim(DEAD)
            ledger.append(half, lease)
            ledger.release(lease)
        if half[0] is events[0]:
            assert haltsweep("report", "synthetic").code == 0
    output = haltsweep("status", "synthetic").out
    assert "haltsweep report synthetic" in output
    assert "undecided" not in output
    assert haltsweep("report", "synthetic").code == 0
    output = haltsweep("status", "synthetic").out
    assert "haltsweep report synthetic" not in output
    assert re.search(r"^arm-1: .*, 3 of 3 ", output, re.MULTILINE)
