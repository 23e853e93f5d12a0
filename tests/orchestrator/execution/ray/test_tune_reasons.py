"""The reason why an actor died, as the ledger keeps it."""

import os
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from orchestrator.execution.ray.environment import ray_environment


@pytest.fixture
def tune():
    with patch.dict(os.environ, ray_environment(private=False)):
        from orchestrator.execution.ray import tune

        yield tune


def test_a_long_error_keeps_its_begin_and_end_without_noise(tune):
    frames = 'File "worker.py", line 1, in train\n    self.step()\n    ^^^^^^^^^^^\n\tpid: 1\n' * 40
    error = Exception(f"\x1b[36mray::PlacedTrial.train()\x1b[39m (pid=1)\n{frames}KeyboardInterrupt\n")
    reason = tune._reason(SimpleNamespace(get_pickled_error=lambda: error))
    assert reason.startswith("ray::PlacedTrial.train() (pid=1) File")
    assert reason.endswith("self.step() KeyboardInterrupt")
    assert not {"^", "pid:"} & set(reason.split())
    assert len(reason) <= tune.REASON_CHARACTERS + len(" ... ")
