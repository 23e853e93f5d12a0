"""`haltsweep logs`: which trial is meant, what is shown of it."""

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
FIRST, SECOND, *_ = PLAN.trials


@pytest.fixture
def sweep(tmp_path):
    return launched(tmp_path, PLAN)


def record(sweep, *events):
    with Ledger.open(sweep.ledger_url, "synthetic") as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append(list(events), lease)
        ledger.release(lease)


def crashed_twice(sweep):
    """Lost once, then an error of its own; another trial failed without a word."""
    trial = trial_of(PLAN, 0)
    record(
        sweep,
        log.asked(1.0, trial),
        log.started(2.0, trial.trial_id, 1),
        log.ended(
            3.0, trial.trial_id, Outcome(OutcomeKind.STOPPED, "worker died, time 1 of 4"), death_cause=True
        ),
        log.started(4.0, trial.trial_id, 2),
        log.ended(5.0, trial.trial_id, Outcome(OutcomeKind.CRASHED, "KeyError: 'x'\nTraceback\n  File 1")),
        log.asked(6.0, trial_of(PLAN, 1)),
        log.started(7.0, SECOND.trial_id, 1),
        log.ended(8.0, SECOND.trial_id, Outcome(OutcomeKind.DIVERGED, "the loss is \x1b[31mnan")),
    )
    folder = sweep.log(trial.trial_id, 1).parent
    folder.mkdir(parents=True)
    sweep.log(trial.trial_id, 1).with_suffix(".raw").write_bytes(b"the \x1b[1mlast words\n")
    sweep.log(trial.trial_id, 2).write_text("hello\nTraceback (most recent call last):\n  whole\n")


def test_without_a_trial_the_failed_ones_are_listed(haltsweep, sweep):
    result = haltsweep("logs", "synthetic")
    assert result.code == 0
    any_printed = "no trial has failed; show the output of any: haltsweep logs synthetic"
    assert result.out == f"{any_printed} {FIRST.place}\n"
    crashed_twice(sweep)
    result = haltsweep("logs", "synthetic")
    assert result.code == 0
    assert f"{FIRST.trial_id}  arm-0/search/0  crashed: KeyError: 'x'\n" in result.out
    assert f"{SECOND.trial_id}  arm-0/search/1  diverged: the loss is \\x1b[31mnan\n" in result.out
    assert result.out.endswith(f"show the whole output of one: haltsweep logs synthetic {FIRST.trial_id}\n")
    found = json.loads(haltsweep("logs", "synthetic", "--json").out)
    assert [(row["trial_id"], row["outcome"], row["attempts"]) for row in found] == [
        (FIRST.trial_id, "crashed", 2),
        (SECOND.trial_id, "diverged", 1),
    ]


def test_every_attempt_is_shown_with_its_output(haltsweep, sweep):
    crashed_twice(sweep)
    result = haltsweep("logs", "synthetic", "arm-0/search/0")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == f"{FIRST.trial_id}  arm-0/search/0  seed {FIRST.seed}"
    assert lines[1].startswith("--- attempt 1, started ")
    assert lines[2:4] == ["worker died, time 1 of 4", "the \\x1b[1mlast words"]
    assert lines[4].startswith("--- attempt 2, started ")
    assert lines[5:] == ["KeyError: 'x'", "hello", "Traceback (most recent call last):", "  whole"]
    found = json.loads(haltsweep("logs", "synthetic", FIRST.trial_id, "--json").out)
    assert [attempt["outcome"] for attempt in found["attempts"]] == ["stopped", "crashed"]
    assert found["attempts"][1]["output"].startswith("hello\n")


def test_where_no_output_is_kept_the_reason_is_shown_whole(haltsweep, sweep):
    crashed_twice(sweep)
    out = haltsweep("logs", "synthetic", SECOND.trial_id[:-1]).out
    assert "the loss is \\x1b[31mnan\n(its output is not stored in " in out
    assert "\x1b" not in out
    assert haltsweep("logs", "synthetic", "arm-1/search/2").out.endswith("not started yet\n")


def test_trials_are_found_by_id_beginning_and_place():
    for text in (FIRST.trial_id, FIRST.trial_id[:12], "arm-0/search/0"):
        assert find_trial(text, PLAN.trials) is FIRST


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "arm-0/serch/0",
            r"got 'arm-0/serch/0'\..*Did you mean 'arm-0/search/0'\?",
        ),
        ("", r"got ''"),
        ("zzz", r"got 'zzz'\..* Known: arm-0/search/0"),
    ],
)
def test_unknown_trials_are_answered_with_the_nearest(text, expected):
    with pytest.raises(InputError, match=expected):
        find_trial(text, PLAN.trials)


def test_a_beginning_that_several_share_is_refused():
    trials = [replace(trial, trial_id=f"ab{number}") for number, trial in enumerate(PLAN.trials)]
    shown = "'ab': 6 trial ids begin with it: ab0, ab1, ab2, ab3, ab4, ab5"
    with pytest.raises(InputError, match=shown):
        find_trial("ab", trials)
    assert find_trial("ab3", trials) is trials[3]


def test_many_trials_are_not_listed_one_by_one():
    plan = make_plan(2, trials_per_arm=100, seeds=())
    with pytest.raises(InputError, match=r"Did you mean 'arm-1/search/99'\?$"):
        find_trial("arm-1/search/999", plan.trials)
    with pytest.raises(InputError, match=r"`haltsweep status --trials` lists all 200$"):
        find_trial("#", plan.trials)
