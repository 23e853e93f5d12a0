"""What is told of a worker that died."""

from types import SimpleNamespace

import pytest

from orchestrator.execution.ray.ray_settings import ray_environment


@pytest.fixture
def tune():
    with ray_environment(private=False):
        from orchestrator.execution.ray import ray_tune

        yield ray_tune


def test_a_traceback_of_ray_is_told_without_colours_and_with_its_end(tune, tmp_path):
    frames = 'File "worker.py", line 1, in train\n    self.step()\n    ^^^^^^^^^^^\n' * 40
    shown = f"Failure # 1\n\x1b[36mray::PlacedTrial.train()\x1b[39m (pid=1)\n{frames}KeyboardInterrupt\n"
    file = tmp_path / "error.txt"
    file.write_text(shown)
    reason = tune._reason(SimpleNamespace(error_file=str(file)))
    assert reason.startswith("ray::PlacedTrial.train() (pid=1) File")
    assert reason.endswith("self.step() KeyboardInterrupt")
    assert "^" not in reason
    assert len(reason) <= tune.REASON_CHARACTERS + len(" ... ")
