"""Trials that end their process: crashed at once or after `retries`; those that are killed run again."""

from orchestrator.ledger.events import EventKind
from orchestrator.spec.section import Resources
from orchestrator.trials import OutcomeKind
from tests.faults.kills.chaos import Place, check_log, go
from tests.support.processes.commands import PATIENCE_S
from tests.support.processes.forks import forks
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan

RETRIES = 1


def sweep(**train):
    """One trial that always ends its process at the same step, and one that is sound."""
    arms = [make_arm("deadly", **train), make_arm("sound")]
    resources = Resources(checkpoint_seconds=AT_EVERY_REPORT_S, retries=RETRIES)
    return make_plan(arms, trials_per_arm=1, seeds=(), resources=resources)


def _session(place):
    place.data.mkdir(parents=True, exist_ok=True)
    go(place)


def code_of(place):
    """How a session in a process of its own ended."""
    process = forks.Process(target=_session, args=(place,))
    process.start()
    process.join(PATIENCE_S)
    return process.exitcode


SOUND = ("sound", OutcomeKind.FINISHED, "ran to step 4")


def ends(place):
    arms = {trial.trial_id: trial.arm for trial in place.plan.trials}
    return [
        (arms[each.trial_id], OutcomeKind(each.payload["kind"]), each.payload["reason"])
        for each in place.events()
        if each.kind is EventKind.ENDED
    ]


def test_a_trial_that_ends_its_process_itself_has_crashed_at_once(tmp_path):
    place = Place(tmp_path, sweep(fault="exit", fault_at=3))
    assert code_of(place) == 0
    check_log(place.events(), place.plan)
    (deadly, kind, reason), sound = ends(place)
    assert (deadly, kind) == ("deadly", OutcomeKind.CRASHED)
    assert "exit code 3" in reason
    assert sound == SOUND


def test_a_trial_that_ends_its_process_at_the_same_step_again_has_crashed_after_its_retries(tmp_path):
    place = Place(tmp_path, sweep(fault="segfault", fault_at=3))
    assert code_of(place) == 0
    check_log(place.events(), place.plan)
    *deadly, sound = ends(place)
    # The first attempt makes progress, up to step 2; those after it make none.
    assert [kind for _, kind, _ in deadly] == [OutcomeKind.STOPPED] * RETRIES + [OutcomeKind.CRASHED]
    for time, (_, _, reason) in enumerate(deadly, start=1):
        assert f"died, time {time} of at most {1 + RETRIES} without progress" in reason
        assert "SIGSEGV" in reason
    assert sound == SOUND


def test_a_trial_that_gets_further_each_time_is_finished(tmp_path):
    """Killed once at every step, more often than there are retries."""
    place = Place(tmp_path, sweep(fault="kill-each"))
    assert code_of(place) == 0
    check_log(place.events(), place.plan)
    assert [kind for arm, kind, _ in ends(place) if arm == "deadly"] == [OutcomeKind.STOPPED] * 4 + [
        OutcomeKind.FINISHED
    ]
    assert ends(place)[-2:] == [("deadly", OutcomeKind.FINISHED, "ran to step 4"), SOUND]
