"""A launch folder, and code that runs there as trials."""

import shutil
from contextlib import closing

import pytest

from orchestrator.isolation.child_server import ChildServer, settings_here
from orchestrator.isolation.messages import ChildEnded
from orchestrator.isolation.working_folder import MAX_COPIED_FILE_BYTES
from tests.support.processes import children
from tests.support.processes.children import Work, order

PATIENCE_S = 60


@pytest.fixture
def launch(tmp_path):
    """Create a launch folder with typical contents."""
    root = tmp_path / "launch"
    for folder in ("data/deep", "results", ".cache", "venv/lib", "runs/earlier", "node_modules"):
        (root / folder).mkdir(parents=True)
    (root / "config.txt").write_text("small")
    (root / "data" / "train.txt").write_text("train")
    (root / "data" / "deep" / "rows.bin").write_bytes(b"x" * (MAX_COPIED_FILE_BYTES + 1))
    (root / "results" / "old.txt").write_text("old")
    (root / ".cache" / "vocabulary.txt").write_text("words")
    (root / "venv" / "pyvenv.cfg").touch()
    (root / "venv" / "lib" / "module.py").touch()
    (root / "runs" / "earlier" / "plan.json").touch()
    return root


@pytest.fixture
def trial(launch, tmp_path):
    """Return a function that runs code as a trial of one session and returns the trial's answer."""
    numbers, scratch = iter(range(100)), tmp_path / "trials" / "none"
    with closing(ChildServer(settings_here(children.MODULE, launch, ()))) as server:

        def run_trial(code, trial="", **options):
            nonlocal scratch
            shutil.rmtree(scratch, ignore_errors=True)
            number = next(numbers)
            scratch = tmp_path / "trials" / f"{trial or number}-{number}"
            server.start(order(children.work, Work(code, scratch, **options)))
            answer = server.receive(PATIENCE_S)
            assert not isinstance(answer, ChildEnded), "the code fails"
            return answer

        yield run_trial
