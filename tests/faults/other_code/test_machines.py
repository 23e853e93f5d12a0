"""Sweeps on a cluster whose machines share nothing, join late and leave; no machine has the custom code
installed."""

import os
from contextlib import suppress

import pytest

from orchestrator.errors import StoreError
from orchestrator.execution.sweep.launch_folder import read_launched_plan
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from tests.faults.kills.chaos import check_log
from tests.support.processes.commands import TINY, Shell, answer, interrupt, wait_for
from tests.support.ray.ray_machines import machines, needs_namespaces, path_on_node
from tests.support.stores.s3 import SECRET, s3_server
from tests.support.training_code.travelling import MODEL, TRAINABLE, write_code

pytestmark = [pytest.mark.slow, needs_namespaces]
SPEC = (
    TINY.replace("steps: 4", "steps: 30")
    .replace("report_every: 2}", "report_every: 6}")
    .replace("resources: {cpus: 1}", "resources: {cpus: 1, checkpoint_seconds: 0.01}")
    .replace("seeds: [101, 102]", "seeds: [101]")
    .replace("profiles:", "posthoc: {model.halt.threshold: [0.5]}\n\nprofiles:")
)
CUSTOM_SPEC = f"""
name: tiny
question: Does a machine that joins get trials, and the code that they run?
trainable: {TRAINABLE}
baseline: {{lr: 0.1, steps: 50, pause: 0.02}}
arms: {{longer: {{why: more steps, set: {{steps: 51}}}}}}
search: {{trials_per_arm: 2000, sampler: random, objectives: [{{metric: valid/score, goal: max}}],
         also: {{lr: {{float: [0.1, 0.2]}}}}}}
resources: {{cpus: 1, checkpoint_seconds: 0.01}}
"""
"""A spec with more trials than can finish, so that it runs until all machines have joined."""
RAY_NOISE = ("gcs_client.cc", "Traceback", "ray.exceptions", "RPC error", "(raylet)", "(pid=")


def sweep_folder(shell):
    return SweepFolder(shell.folder / "runs" / "tiny")


def read_events(folder):
    """Return all events of a sweep; none while the launch creates the sweep."""
    with suppress(StoreError), Ledger.open(folder.ledger_url, "tiny") as ledger:
        return list(ledger.events())
    return []


def events(shell):
    return read_events(sweep_folder(shell))


def count_events(shell, kind):
    return sum(event.kind is kind for event in events(shell))


def store_token(shell, token):
    (shell.home / ".ray").mkdir(exist_ok=True)
    (shell.home / ".ray" / "auth_token").write_text(token)


def has_no_noise(text):
    return not [noise for noise in RAY_NOISE if noise in text]


@pytest.mark.longest
def test_sweep_survives_lost_machines_with_a_token_and_s3(tmp_path):
    shell = Shell.at(tmp_path, SPEC.replace("name: universal,", f"name: {MODEL},"))
    write_code(shell.folder)
    with s3_server(tmp_path / "s3.log") as s3, machines(shell.environment) as cluster:
        check_missing_token(shell, cluster)
        first_node = cluster.join(without=[shell.folder])
        wait_for(lambda: "Ray runtime started" in (cluster.temporary / "node-1.txt").read_text(), first_node)
        check_unshared_folder(shell, cluster)
        arguments = ("launch", "tiny.yaml", "--address", cluster.address, "--checkpoints", s3.uri)
        with shell.started(*arguments) as process:
            wait_for(lambda: count_events(shell, EventKind.STARTED) >= 2, process)
            remote_data = path_on_node(first_node, shell.folder / "data")
            names = {str(path.relative_to(remote_data)) for path in remote_data.rglob("*.arrow")}
            local_data = shell.folder / "data"
            assert names == {str(path.relative_to(local_data)) for path in local_data.rglob("*.arrow")}
            for name in names:
                assert (remote_data / name).read_bytes() == (local_data / name).read_bytes()
            wait_for(
                lambda: count_events(shell, EventKind.CHECKPOINTED) >= 2 and trials_on(first_node), process
            )
            cluster.lose(first_node)
            result = answer(process)
        assert result.code == 0, result.err
        assert cluster.nodes[0].poll() is None, "the launch must not end a foreign cluster"
        assert has_no_noise(result.err + result.out)
        events_ = events(shell)
        check_log(events_, read_launched_plan(sweep_folder(shell)))
        assert [event for event in events_ if event.payload.get("lost")], (
            "the lost machine must have run a trial"
        )
        assert not sweep_folder(shell).checkpoint_folder.exists()
        assert SECRET not in result.err + result.out
        check_store(shell, s3, events_)


def check_missing_token(shell, cluster):
    """Assert that launches are refused until the right token is stored; store it."""
    launch = ("launch", "tiny.yaml", "--address", cluster.address)
    answer_ = shell.run(*launch)
    assert answer_.code == 2
    assert str(cluster.address) in answer_.err
    assert has_no_noise(answer_.err + answer_.out)
    store_token(shell, "0" * 64)
    answer_ = shell.run(*launch)
    assert answer_.code == 2
    assert f"{shell.home}/.ray/auth_token" in answer_.err.replace("\n", "")
    assert has_no_noise(answer_.err + answer_.out)
    store_token(shell, cluster.token)


def check_unshared_folder(shell, cluster):
    """Assert that a launch without a shared folder or store is refused, because its checkpoints could be
    lost. The spec loads no PyTorch, to be quick."""
    (shell.folder / "light.yaml").write_text(CUSTOM_SPEC)
    answer_ = shell.run("launch", "light.yaml", "--address", cluster.address)
    assert answer_.code == 2, answer_.err
    assert "1 of 2" in answer_.err
    assert "--checkpoints s3://" in answer_.err
    assert has_no_noise(answer_.err + answer_.out)
    assert not (shell.folder / "runs").exists()
    assert not (shell.folder / "data").exists()


def check_store(shell, s3, log):
    """Assert that all checkpoints were in S3, and that only confirmed trials keep a checkpoint until the
    removal."""
    checkpoints = [event for event in log if event.kind is EventKind.CHECKPOINTED]
    places = {event.payload["path"].partition("/some/folder/tiny-")[0] for event in checkpoints}
    assert places == {"s3://bucket"}
    confirmed = {event.trial_id for event in log if event.payload.get("phase") == "confirm"}
    assert {name.split("/")[1] for name in s3.files()} == confirmed, "search trials must leave no checkpoint"
    assert shell.run("remove", "tiny", "--yes").code == 0
    assert s3.files() == []


def test_late_machine_needs_the_shared_folder_and_receives_the_code(tmp_path):
    shell, shared = Shell.at(tmp_path, CUSTOM_SPEC), tmp_path / "shared"
    write_code(shell.folder)
    with machines(shell.environment) as cluster:
        store_token(shell, cluster.token)
        launch = ("launch", "tiny.yaml", "--runs", str(shared), "--address", cluster.address)
        with shell.started(*launch) as process:
            output = StreamReader(process.stderr)
            wait_for(lambda: True in folder_visibility(shared), process)
            stranger = cluster.join(without=[shell.folder, shared])
            wait_for(lambda: "it takes no trials" in output(), process)
            friend = cluster.join(without=[shell.folder])
            wait_for(lambda: trials_on(friend) and False in folder_visibility(shared), process)
            stranger_trials, warnings = trials_on(stranger), output()
            interrupt(process)
            result = answer(process)
    assert result.code == 130, result.err
    assert not stranger_trials
    assert "it does not see the folder" in warnings
    assert (warnings + result.err).count("it takes no trials") == 1
    events_ = read_events(SweepFolder(shared / "tiny"))
    assert not [
        event for event in events_ if event.payload.get("lost") or event.payload.get("kind") == "crashed"
    ]


def folder_visibility(shared):
    """Return whether trials with measurements saw the folder of their code."""
    measured = [
        event for event in read_events(SweepFolder(shared / "tiny")) if event.kind is EventKind.MEASURED
    ]
    return {bool(event.payload["metrics"]["valid/sees_folder"]) for event in measured}


class StreamReader:
    """Collect the output of a running command on one stream, as one line."""

    def __init__(self, stream):
        self._file, self._text = stream.fileno(), ""
        os.set_blocking(self._file, False)

    def __call__(self):
        with suppress(BlockingIOError):
            self._text += os.read(self._file, 1 << 16).decode()
        return " ".join(self._text.split())


def trials_on(node):
    return [child for child in node.children(recursive=True) if child.name().startswith("ray::PlacedTrial")]
