"""`haltsweep status`: state, counts, failures with reasons; from ledgers written by hand."""

import json
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest

from orchestrator.cli.display.progress import REASON_CHARACTERS
from orchestrator.conductor.overview import FAILURES_KEPT
from orchestrator.execution.sweep import launch as pipeline
from orchestrator.execution.sweep.open_sweep import SweepResult
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
def holding(sweep, *events):
    """This process runs the sweep and has written `events`."""
    with Ledger.open(sweep.ledger_url, "synthetic") as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append(list(events), lease)
        yield
        ledger.release(lease)


def trial(number, outcome=None, reason="because", steps=1):
    """Events of a trial, up to its end if it has an `outcome`."""
    asked = trial_of(PLAN, number)
    yield log.asked(1.0, asked)
    yield log.started(2.0, asked.trial_id, 1)
    for step in range(1, steps + 1):
        yield log.measured(2.0 + step, asked.trial_id, measurement(step))
    if outcome is not None:
        yield log.ended(100.0, asked.trial_id, Outcome(outcome, reason))


def test_before_anything_has_run(haltsweep, sweep):
    shown = haltsweep("status", "synthetic")
    assert shown.code == 0
    assert "synthetic: unfinished; 0/12 ended, 0 running, 0 pruned\n" in shown.out
    assert shown.out.endswith("continue with: haltsweep resume synthetic\n")


def test_a_budget_that_is_used_up_is_told_and_what_to_do(haltsweep, sweep):
    why = "the budget of 1 device hours is used up"
    with holding(sweep, *trial(0, OutcomeKind.FINISHED), log.closed(9.0, log.BUDGET, why)):
        assert why not in haltsweep("status", "synthetic").out
    shown = haltsweep("status", "synthetic").out
    raised = "for more, raise that limit: `haltsweep extend synthetic budget.LIMIT=MORE`"
    assert f"{why}; {raised}\n" in shown
    assert "continue with" not in shown
    assert json.loads(haltsweep("status", "synthetic", "--json").out)["spent"] == why
    said = f"11 trials have not ended: every number is of those that have. Nothing more begins: {why}.\n"
    assert said in haltsweep("report", "synthetic").err
    page = (sweep.report / "report.html").read_text(encoding="utf-8")
    assert said.strip() in page


def test_while_it_runs_and_after_it_was_killed(haltsweep, sweep):
    with holding(sweep, *trial(0, OutcomeKind.FINISHED), *trial(1)):
        shown = haltsweep("status", "synthetic")
        found = json.loads(haltsweep("status", "synthetic", "--json").out)
        assert "synthetic: running; 1/12 ended, 1 running, 0 pruned, about 10s left" in shown.out
        assert re.search(r"arm-0 search 1, silent for \d+ days +1/4 ", shown.out)
        assert [each["number"] for each in found["running"]] == [1]
        assert "continue with" not in shown.out
        assert (found["state"], found["arms"][0]["running"]) == ("running", 1)
    shown = haltsweep("status", "synthetic")
    assert "synthetic: unfinished; 1/12 ended, 0 running, 0 pruned\n" in shown.out
    assert "continue with: haltsweep resume synthetic" in shown.out


def test_a_stopped_trial_is_not_done(haltsweep, sweep):
    with holding(sweep, *trial(0, OutcomeKind.STOPPED)):
        pass
    assert "0/12 ended, 0 running, 0 pruned\n" in haltsweep("status", "synthetic").out


def test_when_all_is_done(haltsweep, sweep):
    ends = [event for number in range(12) for event in trial(number, OutcomeKind.FINISHED)]
    with holding(sweep, *ends):
        pass
    shown = haltsweep("status", "synthetic")
    assert shown.out.endswith("synthetic: finished; 12/12 ended, 0 running, 0 pruned\n")


def test_when_everything_has_failed(haltsweep, sweep):
    ends = [event for number in range(12) for event in trial(number, OutcomeKind.CRASHED)]
    with holding(sweep, *ends):
        assert haltsweep("status", "synthetic").code == 0, "somebody runs it"
    shown = haltsweep("status", "synthetic")
    assert shown.code == 1
    assert "synthetic: failed; 12/12 ended (12 of them failed), 0 running, 0 pruned\n" in shown.out
    assert "continue with" not in shown.out
    shown = haltsweep("status", "synthetic", "--json")
    assert (shown.code, json.loads(shown.out)["state"]) == (1, "failed")


def test_failures_are_told_with_their_reasons(haltsweep, sweep):
    long = "[bold]" + "x" * 1000
    with holding(
        sweep,
        *trial(0, OutcomeKind.OUT_OF_MEMORY, "no room for the batch"),
        *trial(1, OutcomeKind.CRASHED, f"{long}\nTraceback (most recent call last):\n  File 1"),
        *trial(2, OutcomeKind.PRUNED),
    ):
        pass
    out = haltsweep("status", "synthetic").out
    first, second = (PLAN.trials[number].trial_id for number in (0, 1))
    assert f"failed: arm-0 search 0 ({first}): out_of_memory: no room for the batch\n" in out
    assert f"failed: arm-0 search 1 ({second}): crashed: {long[:REASON_CHARACTERS]}...\n" in out
    assert "Traceback" not in out
    assert out.endswith(f"\nshow the whole traceback: haltsweep logs synthetic {second}\n")
    assert re.search(r"│ arm-0 +│ +3/6 │ +0 │ +1 │ +2 │", out)


def test_many_failures_are_cut_but_not_for_scripts(haltsweep, sweep):
    ends = [event for number in range(12) for event in trial(number, OutcomeKind.DIVERGED)]
    with holding(sweep, *ends):
        pass
    out = haltsweep("status", "synthetic").out
    assert out.count("\nfailed: ") == FAILURES_KEPT
    assert out.endswith("... and 2 more failures; all with --json\n")
    found = json.loads(haltsweep("status", "synthetic", "--json").out)
    assert [each["outcome"] for each in found["trials"]] == ["diverged"] * 12


def test_trials_one_by_one(haltsweep, sweep):
    with holding(sweep, *trial(0, OutcomeKind.FINISHED, steps=3), *trial(7)):
        out = haltsweep("status", "synthetic", "--trials").out
        found = json.loads(haltsweep("status", "synthetic", "--json").out)["trials"]
    done, running = (PLAN.trials[number] for number in (0, 7))
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "search │" in line
    ]
    assert rows == [
        [done.trial_id, "arm-0", "search", "0", str(done.seed), "finished", "3", "model.x=0"],
        [running.trial_id, "arm-1", "search", "1", str(running.seed), "open", "1", "model.x=1"],
    ]
    assert found[0]["metrics"] == dict(measurement(3).metrics)
    assert (found[1]["outcome"], found[1]["reason"], found[1]["attempts"]) == (None, "", 1)


def test_the_end_of_a_sweep_says_where_the_reasons_of_failures_are(haltsweep, sweep, monkeypatch):
    """Resuming a sweep whose trials have failed: the exit code is 1, and one is not left to guess."""
    ends = [event for number in range(12) for event in trial(number, OutcomeKind.CRASHED)]
    with holding(sweep, *ends):
        pass
    ended = Counter({OutcomeKind.CRASHED: 12})
    finish = SweepResult(ended, left=0, interrupted=False, untracked="", unanswered=4)
    monkeypatch.setattr(pipeline, "resume_sweep", lambda *_, **__: finish)
    shown = haltsweep("resume", "synthetic")
    assert shown.code == 1
    assert " failed; why: haltsweep status synthetic\n" in shown.err


def test_trials_that_need_not_run_are_told_once_a_reason_and_are_no_failures(haltsweep, sweep):
    whole = [event for number in range(4) for event in trial(number, OutcomeKind.FINISHED)]
    asked = [trial_of(PLAN, number) for number in range(4, 12)]
    spared = [log.asked(200.0, each) for each in asked]
    skip = Outcome(OutcomeKind.SKIPPED, "the target is reached")
    spared += [log.ended(200.0, each.trial_id, skip) for each in asked]
    with holding(sweep, *whole, *spared):
        pass
    shown = haltsweep("status", "synthetic")
    assert shown.code == 0
    assert "12/12 ended, 0 running, 0 pruned, 8 skipped\n" in shown.out
    assert "ended early: the target is reached (8 trials skipped)\n" in shown.out
    assert json.loads(haltsweep("status", "synthetic", "--json").out)["arms"][1]["skipped"] > 0


def test_verdicts_are_told_of_a_report_on_all_trials_alone(haltsweep, tmp_path):
    """`report --watch` writes one while a sweep runs, and `extend` adds trials to one that is written."""
    arms = [make_arm("arm-0"), replace(make_arm("arm-1"), reference="arm-0")]
    plan = make_plan(arms, seeds=(1, 2, 3))
    folder, events = launched(tmp_path, plan), list(with_test_metrics(plan, history(plan, 0)))
    for part in (events[: len(events) // 2], events[len(events) // 2 :]):
        with Ledger.open(folder.ledger_url, plan.name) as ledger:
            lease = ledger.claim(DEAD)
            ledger.append(part, lease)
            ledger.release(lease)
        if part[0] is events[0]:
            assert haltsweep("report", "synthetic").code == 0
    shown = haltsweep("status", "synthetic").out
    assert "the report is older than the last trials; write it again: haltsweep report synthetic" in shown
    assert "undecided" not in shown
    assert haltsweep("report", "synthetic").code == 0
    shown = haltsweep("status", "synthetic").out
    assert "the report is older" not in shown
    assert re.search(r"^arm-1: .*, 3 of 3 seeds finished", shown, re.MULTILINE)
    written = json.loads((folder.report / "report.json").read_text())
    (folder.report / "report.json").write_text(json.dumps(written | {"notices": ["Mind the code."]}))
    assert "\nMind the code.\narm-1: " in haltsweep("status", "synthetic").out
