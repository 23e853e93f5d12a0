"""A sweep on a cluster whose machines share nothing and leave; no machine has the custom code installed."""

from contextlib import suppress

import pytest

from orchestrator.errors import StoreError
from orchestrator.execution.sweep.launch_folder import read_launched_plan
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from tests.faults.kills.chaos import check_log
from tests.support.processes.commands import TINY, Shell, answer, wait_for
from tests.support.ray.ray_machines import machines, needs_namespaces
from tests.support.stores.s3 import SECRET, s3_server
from tests.support.training_code.travelling import MODEL, write_code

pytestmark = [pytest.mark.slow, needs_namespaces]
SPEC = (
    TINY.replace("steps: 4", "steps: 30")
    .replace("report_every: 2}", "report_every: 6}")
    .replace("resources: {cpus: 1}", "resources: {cpus: 1, checkpoint_seconds: 0.01}")
    .replace("seeds: [101, 102]", "seeds: [101]")
    .replace("trials_per_arm: 2", "trials_per_arm: 1")
    .replace("profiles:", "posthoc: {model.halt.threshold: [0.5]}\n\nprofiles:")
)
RAY_NOISE = ("gcs_client.cc", "Traceback", "ray.exceptions", "RPC error", "(raylet)", "(pid=")


def sweep_folder(shell):
    return SweepFolder(shell.folder / "runs" / "tiny")


def events(shell):
    """Return all events of a sweep; none while the launch creates the sweep."""
    with suppress(StoreError), Ledger.open(sweep_folder(shell).ledger_url, "tiny") as ledger:
        return list(ledger.events())
    return []


def count_events(shell, kind):
    return sum(event.kind is kind for event in events(shell))


def has_no_noise(text):
    return not [noise for noise in RAY_NOISE if noise in text]


@pytest.mark.longest
def test_sweep_survives_lost_machines_with_a_token_and_s3(tmp_path):
    shell = Shell.at(tmp_path, SPEC.replace("name: universal,", f"name: {MODEL},"))
    write_code(shell.folder)
    with s3_server(tmp_path / "s3.log") as s3, machines(shell.environment) as cluster:
        check_refusal(shell, cluster)
        first_node = cluster.join(without=[shell.folder])
        wait_for(lambda: "Ray runtime started" in (cluster.temporary / "node-1.txt").read_text(), first_node)
        arguments = ("launch", "tiny.yaml", "--address", cluster.address, "--checkpoints", s3.uri)
        with shell.started(*arguments) as process:
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
        files = [path for path in shell.folder.rglob("*") if path.is_file()]
        assert not [path for path in files if SECRET.encode() in path.read_bytes()]
        check_store(shell, s3, events_)


def check_refusal(shell, cluster):
    """Assert that a launch with a wrong token is refused, and store the right token."""
    token = shell.home / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("0" * 64)
    refusal = shell.run("launch", "tiny.yaml", "--address", cluster.address)
    assert refusal.code == 2, refusal
    assert str(token) in "".join(refusal.err.split())
    assert has_no_noise(refusal.err + refusal.out)
    assert not (shell.folder / "runs").exists()
    token.write_text(cluster.token)


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


def trials_on(node):
    return [child for child in node.children(recursive=True) if child.name().startswith("ray::PlacedTrial")]
