"""`haltsweep logs` selects a trial and prints its output."""

import json
from dataclasses import replace

import pytest

from orchestrator.cli.commands.logs import find_trial
from orchestrator.errors import InputError
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import trial_of
from tests.support.sweeps.launched import launched

PLAN = make_plan(2, trials_per_arm=3, seeds=())
FIRST_TRIAL, SECOND_TRIAL, *_ = PLAN.trials


@pytest.fixture(autouse=True)
def sweep(tmp_path):
    """Write one trial with a lost and a failed attempt, and one diverged trial without output."""
    sweep, trial = launched(tmp_path, PLAN), trial_of(PLAN, 0)
    events = [
        log.params_event(1.0, trial),
        log.start_event(2.0, trial.trial_id, 1),
        log.end_event(
            3.0, trial.trial_id, Outcome(OutcomeKind.STOPPED, "worker died, time 1 of 4"), death_cause=True
        ),
        log.start_event(4.0, trial.trial_id, 2),
        log.end_event(
            5.0, trial.trial_id, Outcome(OutcomeKind.CRASHED, "KeyError: 'x'\nTraceback\n  File 1")
        ),
        log.params_event(6.0, trial_of(PLAN, 1)),
        log.start_event(7.0, SECOND_TRIAL.trial_id, 1),
        log.end_event(8.0, SECOND_TRIAL.trial_id, Outcome(OutcomeKind.DIVERGED, "the loss is \x1b[31mnan")),
    ]
    with Ledger.open(sweep.ledger_url, "synthetic") as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append(events, lease)
        ledger.release(lease)
    folder = sweep.log(trial.trial_id, 1).parent
    folder.mkdir(parents=True)
    sweep.log(trial.trial_id, 1).with_suffix(".raw").write_bytes(b"the \x1b[1mlast words\n")
    sweep.log(trial.trial_id, 2).write_text("hello\nTraceback (most recent call last):\n  whole\n")


def test_logs_without_a_trial_lists_the_failed_trials(haltsweep):
    result = haltsweep("logs", "synthetic")
    assert result.code == 0
    assert f"{FIRST_TRIAL.trial_id}  arm-0/search/0  crashed: KeyError: 'x'\n" in result.out
    assert f"{SECOND_TRIAL.trial_id}  arm-0/search/1  diverged: the loss is \\x1b[31mnan\n" in result.out
    failures = json.loads(haltsweep("logs", "synthetic", "--json").out)
    assert [(row["trial_id"], row["outcome"], row["attempts"]) for row in failures] == [
        (FIRST_TRIAL.trial_id, "crashed", 2),
        (SECOND_TRIAL.trial_id, "diverged", 1),
    ]


def test_logs_prints_every_attempt_with_its_output(haltsweep):
    result = haltsweep("logs", "synthetic", "arm-0/search/0")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == f"{FIRST_TRIAL.trial_id}  arm-0/search/0  seed {FIRST_TRIAL.seed}"
    assert lines[1].startswith("--- attempt 1")
    assert lines[2:4] == ["worker died, time 1 of 4", "the \\x1b[1mlast words"]
    assert lines[4].startswith("--- attempt 2")
    assert lines[5:] == ["KeyError: 'x'", "hello", "Traceback (most recent call last):", "  whole"]
    trial_json = json.loads(haltsweep("logs", "synthetic", FIRST_TRIAL.trial_id, "--json").out)
    assert [attempt["outcome"] for attempt in trial_json["attempts"]] == ["stopped", "crashed"]
    assert trial_json["attempts"][1]["output"].startswith("hello\n")


def test_unknown_or_ambiguous_trial_is_refused():
    with pytest.raises(InputError, match=r"'arm-0/serch/0'.*'arm-0/search/0'"):
        find_trial("arm-0/serch/0", PLAN.trials)
    trials = [replace(trial, trial_id=f"ab{number}") for number, trial in enumerate(PLAN.trials)]
    with pytest.raises(InputError, match="ab0, ab1, ab2, ab3, ab4, ab5"):
        find_trial("ab", trials)
    assert find_trial("ab3", trials) is trials[3]
