"""Trials that take their process with them are ended after `retries`, however the process is killed."""

import signal

import pytest

from orchestrator.ledger.events import EventKind
from orchestrator.spec.section import Resources
from orchestrator.trials import OutcomeKind
from tests.faults.chaos import Place, check_log, go
from tests.support.commands import PATIENCE_S
from tests.support.forks import forks
from tests.support.plans import AT_EVERY_REPORT_S, make_arm, make_plan

RETRIES = 1


def sweep(*, retries=RETRIES, **train):
    """One trial that always ends its process at the same step, and one that is sound."""
    arms = [make_arm("deadly", **train), make_arm("sound")]
    resources = Resources(checkpoint_seconds=AT_EVERY_REPORT_S, retries=retries)
    return make_plan(arms, trials_per_arm=1, seeds=(), resources=resources)


def _session(place, driver, more):
    place.data.mkdir(parents=True, exist_ok=True)
    go(place, driver, **more)


def code_of(place, driver="inline", **more):
    """How a session in a process of its own ended."""
    process = forks.Process(target=_session, args=(place, driver, more))
    process.start()
    process.join(PATIENCE_S)
    return process.exitcode


def ends(place):
    arms = {trial.trial_id: trial.arm for trial in place.plan.trials}
    return [
        (arms[each.trial_id], OutcomeKind(each.payload["kind"]), each.payload["reason"])
        for each in place.events()
        if each.kind is EventKind.ENDED
    ]


@pytest.mark.parametrize(
    ("fault", "code"), [("exit", 3), ("segfault", -signal.SIGSEGV), ("kill", -signal.SIGKILL)]
)
def test_a_trial_that_ends_the_inline_process_where_it_is_has_crashed(tmp_path, fault, code):
    place = Place(tmp_path, sweep(fault=fault, fault_at=3, kills=99))
    # The first attempt makes progress, up to step 2; those after it make none.
    assert [code_of(place) for _ in range(1 + 1 + RETRIES)] == [code] * (1 + 1 + RETRIES)
    assert code_of(place) == 0
    check_log(place.events(), place.plan)
    shown = "launching process died, time {} of at most 2 without progress: it ended while it ran this trial"
    assert ends(place) == [
        ("deadly", OutcomeKind.STOPPED, shown.format(1)),
        ("deadly", OutcomeKind.CRASHED, shown.format(2)),
        ("sound", OutcomeKind.FINISHED, "ran to step 4"),
    ]


def test_a_trial_that_gets_further_each_time_is_finished(tmp_path):
    """Killed once at every step, more often than there are retries."""
    place = Place(tmp_path, sweep(fault="kill-each"))
    assert [code_of(place) for _ in range(5)] == [-signal.SIGKILL] * 4 + [0]
    check_log(place.events(), place.plan)
    assert ends(place)[-2:] == [(arm, OutcomeKind.FINISHED, "ran to step 4") for arm in ("deadly", "sound")]


@pytest.mark.slow
def test_a_trial_of_ray_that_kills_the_launcher_has_crashed(tmp_path):
    place = Place(tmp_path, sweep(fault="kill-launcher", fault_at=1, retries=0))
    assert code_of(place, "ray", num_cpus=1) == -signal.SIGKILL
    assert code_of(place) == 0, "whichever driver goes on"
    check_log(place.events(), place.plan)
    assert [(arm, kind) for arm, kind, _ in ends(place)] == [
        ("deadly", OutcomeKind.CRASHED),
        ("sound", OutcomeKind.FINISHED),
    ]
