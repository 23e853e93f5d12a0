"""Sweeps on a cluster whose machines share nothing, come, and go; own code is installed on none of them."""

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
    .replace("profiles:", "posthoc: {model.halt.threshold: [0.5]}\n\nprofiles:")
)
OWN_CODE = f"""
name: tiny
question: Does a machine that joins get trials, and the code that they run?
trainable: {TRAINABLE}
baseline: {{lr: 0.1, steps: 50, pause: 0.02}}
arms: {{longer: {{why: more steps, set: {{steps: 51}}}}}}
search: {{trials_per_arm: 2000, sampler: random, objectives: [{{metric: valid/score, goal: max}}],
         also: {{lr: {{float: [0.1, 0.2]}}}}}}
resources: {{cpus: 1, checkpoint_seconds: 0.01}}
"""
"""More than can be done: it goes on until all machines have joined, however long that takes."""
RAYS_NOISE = ("gcs_client.cc", "Traceback", "ray.exceptions", "RPC error", "(raylet)", "(pid=")


def sweep(shell):
    return SweepFolder(shell.folder / "runs" / "tiny")


def logged(folder):
    """All events of a sweep; none while it is coming into being."""
    with suppress(StoreError), Ledger.open(folder.ledger_url, "tiny") as ledger:
        return list(ledger.events())
    return []


def events(shell):
    return logged(sweep(shell))


def seen(shell, kind):
    return sum(each.kind is kind for each in events(shell))


def keep_token(shell, token):
    (shell.home / ".ray").mkdir(exist_ok=True)
    (shell.home / ".ray" / "auth_token").write_text(token)


def quiet(text):
    return not [noise for noise in RAYS_NOISE if noise in text]


@pytest.mark.longest
def test_machines_that_share_nothing_ask_for_a_token_work_with_s3_and_may_be_lost(tmp_path):
    shell = Shell.at(tmp_path, SPEC.replace("name: universal,", f"name: {MODEL},"))
    write_code(shell.folder)
    with s3_server(tmp_path / "s3.log") as s3, machines(shell.environment) as cluster:
        refused_without_its_token(shell, cluster)
        first = cluster.join(without=[shell.folder])
        wait_for(lambda: "Ray runtime started" in (cluster.temporary / "node-1.txt").read_text(), first)
        refused_where_nothing_is_shared(shell, cluster)
        arguments = ("launch", "tiny.yaml", "--address", cluster.address, "--checkpoints", s3.uri)
        with shell.started(*arguments) as process:
            wait_for(lambda: seen(shell, EventKind.STARTED) >= 2, process)
            built = path_on_node(first, shell.folder / "data")
            names = {str(path.relative_to(built)) for path in built.rglob("*.arrow")}
            ours = shell.folder / "data"
            assert names == {str(path.relative_to(ours)) for path in ours.rglob("*.arrow")}
            for name in names:
                assert (built / name).read_bytes() == (ours / name).read_bytes()
            wait_for(lambda: seen(shell, EventKind.CHECKPOINTED) >= 2 and trials_on(first), process)
            cluster.lose(first)
            said = answer(process)
        assert said.code == 0, said.err
        assert cluster.nodes[0].poll() is None, "the cluster is not ours to end"
        assert quiet(said.err + said.out)
        log = events(shell)
        check_log(log, read_launched_plan(sweep(shell)))
        assert [each for each in log if each.payload.get("lost")], "a trial was on the machine that went"
        assert not sweep(shell).checkpoints.exists()
        assert SECRET not in said.err + said.out
        check_store(shell, s3, log)


def refused_without_its_token(shell, cluster):
    """Until the token is there; then it is kept."""
    launch = ("launch", "tiny.yaml", "--address", cluster.address)
    said = shell.run(*launch)
    assert said.code == 2
    assert f"the cluster at {cluster.address} asks for a token, and there is none here; copy" in said.err
    assert quiet(said.err + said.out)
    keep_token(shell, "0" * 64)
    said = shell.run(*launch)
    assert said.code == 2
    assert f"the one in {shell.home}/.ray/auth_token is not its" in said.err.replace("\n", "")
    assert quiet(said.err + said.out)
    keep_token(shell, cluster.token)


def refused_where_nothing_is_shared(shell, cluster):
    """Checkpoints would be lost with the machine. Code that is asked about without PyTorch will do for it."""
    (shell.folder / "light.yaml").write_text(OWN_CODE)
    said = shell.run("launch", "light.yaml", "--address", cluster.address)
    assert said.code == 2, said.err
    assert "all nodes must share the folder of sweeps" in said.err
    assert "1 of 2 do not" in said.err
    assert "give --checkpoints s3://bucket/folder or another store" in said.err
    assert quiet(said.err + said.out)
    assert not (shell.folder / "runs").exists()
    assert not (shell.folder / "data").exists()


def check_store(shell, s3, log):
    """All checkpoints were in S3, those of confirmed trials are, and none once the sweep is removed."""
    saved = [each for each in log if each.kind is EventKind.CHECKPOINTED]
    places = {each.payload["path"].partition("/some/folder/tiny-")[0] for each in saved}
    assert places == {"s3://bucket"}
    confirmed = {each.trial_id for each in log if each.payload.get("phase") == "confirm"}
    assert {name.split("/")[1] for name in s3.files()} == confirmed, "searched trials leave nothing"
    assert shell.run("remove", "tiny", "--yes").code == 0
    assert s3.files() == []


def test_who_joins_without_the_shared_folder_takes_no_trials_and_who_has_it_gets_the_code(tmp_path):
    shell, shared = Shell.at(tmp_path, OWN_CODE), tmp_path / "shared"
    write_code(shell.folder)
    with machines(shell.environment) as cluster:
        keep_token(shell, cluster.token)
        launch = ("launch", "tiny.yaml", "--runs", str(shared), "--address", cluster.address)
        with shell.started(*launch) as process:
            shown = Listening(process.stderr)
            wait_for(lambda: True in folder_seen(shared), process)
            stranger = cluster.join(without=[shell.folder, shared])
            wait_for(lambda: "it takes no trials" in shown(), process)
            friend = cluster.join(without=[shell.folder])
            wait_for(lambda: trials_on(friend) and False in folder_seen(shared), process)
            strangers, heard = trials_on(stranger), shown()
            interrupt(process)
            said = answer(process)
    assert said.code == 130, said.err
    assert not strangers
    assert "it does not see the folder" in heard
    assert (heard + said.err).count("it takes no trials") == 1
    log = logged(SweepFolder(shared / "tiny"))
    assert not [each for each in log if each.payload.get("lost") or each.payload.get("kind") == "crashed"]


def folder_seen(shared):
    """Whether trials that measured something saw the folder of their code."""
    measured = [each for each in logged(SweepFolder(shared / "tiny")) if each.kind is EventKind.MEASURED]
    return {bool(each.payload["metrics"]["valid/sees_folder"]) for each in measured}


class Listening:
    """What a running command has said so far on one stream, in one line."""

    def __init__(self, stream):
        self._file, self._text = stream.fileno(), ""
        os.set_blocking(self._file, False)

    def __call__(self):
        with suppress(BlockingIOError):
            self._text += os.read(self._file, 1 << 16).decode()
        return " ".join(self._text.split())


def trials_on(node):
    return [each for each in node.children(recursive=True) if each.name().startswith("ray::PlacedTrial")]
