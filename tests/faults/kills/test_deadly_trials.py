"""Trials that end their process crash at once or after `retries`; trials that are killed from outside run
again."""

import re

from orchestrator.ledger.events import EventKind
from orchestrator.spec.section import Resources
from orchestrator.trials import OutcomeKind
from tests.faults.kills.chaos import KillableSweep, check_log, launch_or_resume
from tests.support.processes.commands import PATIENCE_S
from tests.support.processes.forks import forks
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan

RETRIES = 1


def make_sweep_plan(**train):
    """Make a plan of one trial that always ends its process at the same step, and one sound trial."""
    arms = [make_arm("deadly", **train), make_arm("sound")]
    resources = Resources(checkpoint_seconds=AT_EVERY_REPORT_S, retries=RETRIES)
    return make_plan(arms, trials_per_arm=1, seeds=(), resources=resources)


def _run_launch(sweep):
    sweep.data.mkdir(parents=True, exist_ok=True)
    launch_or_resume(sweep)


def session_exit_code(sweep):
    """Return the exit code of a session in a subprocess."""
    process = forks.Process(target=_run_launch, args=(sweep,))
    process.start()
    process.join(PATIENCE_S)
    return process.exitcode


def trial_ends(sweep):
    arms = {trial.trial_id: trial.arm for trial in sweep.plan.trials}
    return [
        (arms[event.trial_id], OutcomeKind(event.payload["kind"]), event.payload["reason"])
        for event in sweep.events()
        if event.kind is EventKind.ENDED
    ]


def test_trial_that_exits_its_process_crashes_at_once(tmp_path):
    sweep = KillableSweep(tmp_path, make_sweep_plan(fault="exit", fault_at=3))
    assert session_exit_code(sweep) == 0
    check_log(sweep.events(), sweep.plan)
    deadly, sound_trial = trial_ends(sweep)
    assert deadly[:2] == ("deadly", OutcomeKind.CRASHED)
    assert "exit code 3" in deadly[2]
    assert sound_trial[:2] == ("sound", OutcomeKind.FINISHED)


def test_trial_that_dies_at_the_same_step_crashes_after_its_retries(tmp_path):
    sweep = KillableSweep(tmp_path, make_sweep_plan(fault="segfault", fault_at=3))
    assert session_exit_code(sweep) == 0
    check_log(sweep.events(), sweep.plan)
    *deadly, sound_trial = trial_ends(sweep)
    # The first attempt makes progress up to step 2; later attempts make none.
    assert [kind for _, kind, _ in deadly] == [OutcomeKind.STOPPED] * RETRIES + [OutcomeKind.CRASHED]
    for attempt, (_, _, reason) in enumerate(deadly, start=1):
        assert re.search(rf" {attempt} .* {1 + RETRIES} .*SIGSEGV", reason)
    assert sound_trial[:2] == ("sound", OutcomeKind.FINISHED)


def test_killed_trial_with_progress_finishes(tmp_path):
    """The trial is killed once at every step, more often than it has retries."""
    sweep = KillableSweep(tmp_path, make_sweep_plan(fault="kill-each"))
    assert session_exit_code(sweep) == 0
    check_log(sweep.events(), sweep.plan)
    assert [kind for arm, kind, _ in trial_ends(sweep) if arm == "deadly"] == [OutcomeKind.STOPPED] * 4 + [
        OutcomeKind.FINISHED
    ]
    assert trial_ends(sweep)[-1][:2] == ("sound", OutcomeKind.FINISHED)
