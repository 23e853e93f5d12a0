import pytest

from orchestrator.conductor.attempts import Attempts
from orchestrator.ledger.events import Event, EventKind
from orchestrator.trials import OutcomeKind

STARTED = (EventKind.STARTED, {"token": 1})
LOST = (EventKind.ENDED, {"kind": "stopped", "lost": True})
MEASURED = (EventKind.MEASURED, {"step": 4})
SAVED = (EventKind.CHECKPOINTED, {"step": 4})


def seen(*events, phase="search"):
    made = Attempts(phase)
    for kind, payload in events:
        made.saw(Event(kind, 0.0, "a", payload))
    return made


def test_only_deaths_in_a_row_count():
    assert seen(STARTED, LOST, STARTED, LOST).loss("worker", "gone", 2).kind is OutcomeKind.CRASHED
    shown = seen(STARTED, LOST, STARTED, MEASURED, LOST).loss("worker", "gone", 2)
    assert (shown.kind, shown.reason) == (
        OutcomeKind.STOPPED,
        "worker died, time 2 of at most 3 without progress: gone",
    )


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
