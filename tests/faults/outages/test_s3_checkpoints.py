"""A sweep with checkpoints in S3 is killed, resumed and re-evaluated; its folder contains no checkpoint."""

import json
import signal
from contextlib import suppress

import pytest

from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from tests.support.processes.commands import TINY, Shell, answer, wait_for
from tests.support.stores.s3 import SECRET, s3_server

pytestmark = pytest.mark.slow
SPEC = (
    TINY.replace("steps: 4", "steps: 12")
    .replace("resources: {cpus: 1}", "resources: {cpus: 1, checkpoint_seconds: 0.01}")
    .replace("trials_per_arm: 2", "trials_per_arm: 1")
    .replace("profiles:", "posthoc: {model.halt.threshold: [0.5]}\n\nprofiles:")
)
LAUNCH = ("launch", "tiny.yaml", "--driver", "inline", "--checkpoints")
"""The driver does not matter to checkpoints; `test_machines` loses a node of Ray."""


@pytest.fixture
def s3(tmp_path):
    with s3_server(tmp_path / "s3.log") as server:
        yield server


@pytest.fixture
def shell(tmp_path, s3):
    return Shell.at(tmp_path, SPEC)


def events(shell):
    folder = SweepFolder(shell.folder / "runs" / "tiny")
    with Ledger.open(folder.ledger_url, "tiny") as ledger:
        return list(ledger.events())


def checkpoint_events(shell):
    with suppress(Exception):
        return [event for event in events(shell) if event.kind is EventKind.CHECKPOINTED]
    return []


def test_secret_is_not_written_and_a_lost_store_is_reported(shell, s3):
    with shell.started(*LAUNCH, s3.uri) as process:
        wait_for(lambda: checkpoint_events(shell), process)
        process.send_signal(signal.SIGINT)
        launch_result = answer(process)
    assert launch_result.code == 130, launch_result.err
    s3.kill()
    resume_result = shell.run("resume", "tiny", "--driver", "inline")
    assert resume_result.code == 1
    assert "--checkpoints" in resume_result.err
    assert "Traceback" not in launch_result.err + resume_result.err
    setup = json.loads((shell.folder / "runs" / "tiny" / "launch.json").read_text())
    assert s3.uri in json.dumps(setup)
    texts = [launch_result.out, launch_result.err, resume_result.out, resume_result.err]
    files = [path.read_bytes() for path in shell.folder.rglob("*") if path.is_file()]
    assert not [text for text in texts if SECRET in text]
    assert not [content for content in files if SECRET.encode() in content]
