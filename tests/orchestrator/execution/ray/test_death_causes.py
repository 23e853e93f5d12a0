"""The reason and the cause of an actor's death are read from the file in which Tune stores the error."""

import os
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from orchestrator.trials import DeathCause
from tests.support.ray.connection import driver_environment

RAISED_ERROR = "\x1b[36mray::PlacedTrial.train()\x1b[39m (pid=1)\nKeyboardInterrupt\n"
DEATH = "The actor died unexpectedly before finishing this task.\n\tclass_name: PlacedTrial\n\tactor_id: 5a\n"


@pytest.fixture
def tune():
    with patch.dict(os.environ, driver_environment()):
        from orchestrator.execution.ray import tune

        yield tune


def run_with_error(folder, error):
    """Store an error as Tune does, and return the run of Tune."""
    file = folder / "error.txt"
    file.write_text(f"Failure # 1 (occurred at 2026-01-01_00-00-00)\n{error}\n")
    return SimpleNamespace(error_file=str(file))


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RAISED_ERROR, DeathCause.TRIAL),
        (f"The actor died because of an error raised in its creation task, {RAISED_ERROR}", DeathCause.TRIAL),
        (
            f"{DEATH}{DEATH * 20}Task was killed due to the node running low on memory.\n{DEATH * 20}",
            "memory",
        ),
        (f"{DEATH}The actor is dead because its worker process has died.", DeathCause.OUTSIDE),
    ],
)
def test_cause_of_a_death_is_read_from_the_complete_error(tune, tmp_path, error, cause):
    assert tune.classify_death(tune.read_error(run_with_error(tmp_path, error))) == cause


def test_run_without_an_error_file_was_ended_from_outside(tune, tmp_path):
    text = tune.read_error(SimpleNamespace(error_file=str(tmp_path / "missing")))
    assert text
    assert tune.classify_death(text) is DeathCause.OUTSIDE
