"""The reason and cause of an actor's death, as the ledger keeps them."""

import os
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from orchestrator.trials import DeathCause
from tests.support.ray.connection import driver_environment


@pytest.fixture
def died(tmp_path):
    """Returns the reason and the cause that the scheduler records for an error as Tune writes it."""
    with patch.dict(os.environ, driver_environment()):
        from orchestrator.execution.ray import tune

    def record(error):
        lost = []
        file = tmp_path / "error.txt"
        if error is not None:
            file.write_text(f"Failure # 1 (occurred at 2026-11-29_10-00-00)\n{error}\n")
        run = SimpleNamespace(trial_id="one", error_file=str(file))
        session = SimpleNamespace(lost=lambda *death: lost.append(death))
        link = tune._Link(session, None, None, None, runs={"one": run})
        with patch.dict(tune._SESSIONS, {"key": link}):
            tune.SessionScheduler("key").on_trial_error(None, run)
        ((_, reason, cause),) = lost
        return reason, cause

    return record


def test_a_long_error_keeps_its_begin_and_end_without_noise(died):
    frames = 'File "worker.py", line 1, in train\n    self.step()\n    ^^^^^^^^^^^\n\tpid: 1\n' * 40
    reason, cause = died(f"\x1b[36mray::PlacedTrial.train()\x1b[39m (pid=1)\n{frames}KeyboardInterrupt")
    assert reason.startswith("ray::PlacedTrial.train() (pid=1) File")
    assert reason.endswith("self.step() KeyboardInterrupt")
    assert not {"^", "pid:"} & set(reason.split())
    assert len(reason) <= 520
    assert cause is DeathCause.TRIAL


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("x" * 400 + " the node was running low on memory " + "y" * 400, DeathCause.MEMORY),
        ("The actor died unexpectedly before finishing this task.\n\tactor_id: a", DeathCause.OUTSIDE),
        (None, DeathCause.OUTSIDE),
    ],
    ids=["memory, in the middle of a long error", "killed", "no file"],
)
def test_the_cause_is_decided_from_the_complete_error(died, error, cause):
    assert died(error)[1] is cause
