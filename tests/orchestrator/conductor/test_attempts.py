import re

import pytest

from orchestrator.conductor.attempts import MAX_KILLS, Attempts, ExternalKills
from orchestrator.ledger.events import Event, EventKind
from orchestrator.trials import DeathCause, OutcomeKind

START_EVENT = (EventKind.STARTED, {"token": 1})
LOSS_EVENT = (EventKind.ENDED, {"kind": "stopped", "lost": True})
REPORT_EVENT = (EventKind.MEASURED, {"step": 4})


def make_attempts(*events, phase="search"):
    attempts = Attempts(phase)
    for kind, payload in events:
        attempts.apply(Event(kind, 0.0, "a", payload))
    return attempts


def test_only_consecutive_deaths_count():
    assert (
        make_attempts(START_EVENT, LOSS_EVENT, START_EVENT, LOSS_EVENT)
        .outcome_after_death("worker", "gone", 2)
        .kind
        is OutcomeKind.CRASHED
    )
    outcome = make_attempts(
        START_EVENT, LOSS_EVENT, START_EVENT, REPORT_EVENT, LOSS_EVENT
    ).outcome_after_death("worker", "gone", 2)
    assert outcome.kind is OutcomeKind.STOPPED
    assert re.search("worker .* 2 .* 3 .*gone", outcome.reason)


OUTSIDE_KILL_EVENT = (EventKind.ENDED, {"kind": "stopped", "lost": True, "outside": True})


def test_outside_kills_do_not_count_as_losses():
    attempts = make_attempts(
        START_EVENT, OUTSIDE_KILL_EVENT, START_EVENT, LOSS_EVENT, START_EVENT, OUTSIDE_KILL_EVENT
    )
    assert attempts.num_deaths == 1
    assert (
        attempts.outcome_after_death("worker", "SIGKILL", 0, DeathCause.OUTSIDE).kind is OutcomeKind.STOPPED
    )
    assert attempts.outcome_after_death("worker", "SIGSEGV", 1, DeathCause.TRIAL).kind is OutcomeKind.CRASHED


def test_repeated_memory_kills_end_a_trial_as_out_of_memory():
    attempts = make_attempts(START_EVENT, LOSS_EVENT)
    assert attempts.outcome_after_death("worker", "SIGKILL", 2, DeathCause.MEMORY).kind is OutcomeKind.STOPPED
    assert (
        attempts.outcome_after_death("worker", "SIGKILL", 1, DeathCause.MEMORY).kind
        is OutcomeKind.OUT_OF_MEMORY
    )


def test_kills_are_counted_by_trial_until_progress():
    kills = ExternalKills()
    for _ in range(MAX_KILLS):
        assert kills.blocked_trials() == {}
        kills.add("a", "SIGKILL")
        kills.add("b", "SIGTERM") if not kills.blocked_trials() else None
    assert list(kills.blocked_trials()) == ["a"]
    kills.clear()
    assert kills.blocked_trials() == {}


@pytest.mark.parametrize(
    ("phase", "kind", "is_restored"),
    [
        ("confirm", "finished", True),
        ("confirm", "crashed", False),
        ("search", "finished", False),
        ("search", "stopped", True),
    ],
)
def test_phase_and_outcome_decide_whether_a_checkpoint_is_restored(phase, kind, is_restored):
    assert (
        make_attempts(START_EVENT, (EventKind.ENDED, {"kind": kind}), phase=phase).keeps_checkpoints
        is is_restored
    )
