"""A trial may change its working directory; whoever runs it stays where it was."""

import os
from pathlib import Path

import pytest

from orchestrator.drivers import worker
from orchestrator.drivers.worker import Harness
from orchestrator.drivers.working_directory import WorkingDirectory
from orchestrator.trials import OutcomeKind
from tests.support.plans import make_arm
from trainables.protocol import Job, Measurement


class Wanderer:
    """Goes to `elsewhere` of its data folder at its first step, and tells by metrics where it stands."""

    def __init__(self, job):
        self._elsewhere = job.data_dir / "elsewhere"
        self._step = 0

    @property
    def finished(self):
        return self._step == 2

    def advance(self):
        stands_there = float(self._elsewhere.exists() and Path.cwd().samefile(self._elsewhere))
        self._elsewhere.mkdir(parents=True, exist_ok=True)
        os.chdir(self._elsewhere)
        self._step += 1
        return Measurement(self._step, 0.0, {"valid/there": stands_there})

    def save(self, folder):
        (folder / "state").write_text("")

    def close(self):
        os.chdir(self._elsewhere)


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def test_a_trial_that_changes_its_directory_keeps_it_and_its_sweep_stays(home, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "load_workload", lambda _: Wanderer)
    harness = Harness("tests:any", checkpoint_seconds=0.0)
    for name in ("one", "other"):
        harness.start(Job(make_arm("arm").settings, seed=3, data_dir=tmp_path / name), Path("runs") / name)
        there = []
        for step in (1, 2):
            reply = harness.advance()
            there.append(reply.measurement.metrics["valid/there"])
            assert Path.cwd() == home
            assert reply.checkpoint == step
        assert reply.ended.kind is OutcomeKind.FINISHED
        assert there == [0.0, 1.0], "each begins where the sweep is, and goes on where it went"
        assert (home / "runs" / name / "step-000000002").is_dir(), "relative paths are those of the sweep"
    assert not (tmp_path / "one/elsewhere/runs").exists()


def test_directories_that_are_gone_do_no_harm(home):
    directory = WorkingDirectory()
    (home / "gone").mkdir()
    with directory.inside():
        os.chdir("gone")
    (home / "gone").rmdir()
    with directory.inside():
        assert Path.cwd() == home
    (home / "gone").mkdir()
    with directory.inside():
        os.chdir("gone")
        (home / "gone").rmdir()
    assert Path.cwd() == home
    with directory.inside():
        assert Path.cwd() == home
