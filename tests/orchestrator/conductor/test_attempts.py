import pytest

from orchestrator.conductor.attempts import MOST_KILLS, Attempts, Kills
from orchestrator.ledger.events import Event, EventKind
from orchestrator.trials import DeathCause, OutcomeKind

STARTED = (EventKind.STARTED, {"token": 1})
LOST = (EventKind.ENDED, {"kind": "stopped", "lost": True})
MEASURED = (EventKind.MEASURED, {"step": 4})
SAVED = (EventKind.CHECKPOINTED, {"step": 4})


def seen(*events, phase="search"):
    made = Attempts(phase)
    for kind, payload in events:
        made.apply(Event(kind, 0.0, "a", payload))
    return made


def test_only_deaths_in_a_row_count():
    assert seen(STARTED, LOST, STARTED, LOST).loss("worker", "gone", 2).kind is OutcomeKind.CRASHED
    shown = seen(STARTED, LOST, STARTED, MEASURED, LOST).loss("worker", "gone", 2)
    assert (shown.kind, shown.reason) == (
        OutcomeKind.STOPPED,
        "worker died, time 2 of at most 3 without progress: gone",
    )


KILLED = (EventKind.ENDED, {"kind": "stopped", "lost": True, "outside": True})


def test_deaths_from_outside_are_no_losses_and_never_end_a_trial():
    shown = seen(STARTED, KILLED, STARTED, LOST, STARTED, KILLED)
    assert shown.losses == 1
    assert shown.loss("worker", "SIGKILL", 0, DeathCause.OUTSIDE).kind is OutcomeKind.STOPPED
    assert shown.loss("worker", "SIGSEGV", 1, DeathCause.TRIAL).kind is OutcomeKind.CRASHED


def test_a_trial_that_the_system_kills_for_memory_again_and_again_was_out_of_memory():
    shown = seen(STARTED, LOST)
    assert shown.loss("worker", "SIGKILL", 2, DeathCause.MEMORY).kind is OutcomeKind.STOPPED
    assert shown.loss("worker", "SIGKILL", 1, DeathCause.MEMORY).kind is OutcomeKind.OUT_OF_MEMORY


def test_kills_are_counted_by_trial_until_anything_makes_progress():
    kills = Kills()
    for _ in range(MOST_KILLS):
        assert kills.waiting() == {}
        kills.add("a", "SIGKILL")
        kills.add("b", "SIGTERM") if not kills.waiting() else None
    assert list(kills.waiting()) == ["a"]
    kills.clear()
    assert kills.waiting() == {}


def test_a_checkpoint_that_was_there_before_is_no_progress():
    assert seen(STARTED, SAVED, LOST, STARTED, SAVED).losses == 1


@pytest.mark.parametrize(
    ("phase", "kind", "read_again"),
    [
        ("confirm", "finished", True),
        ("confirm", "crashed", False),
        ("search", "finished", False),
        ("search", "stopped", True),
    ],
)
def test_whose_checkpoints_are_read_again(phase, kind, read_again):
    assert seen(STARTED, (EventKind.ENDED, {"kind": kind}), phase=phase).read_again is read_again
