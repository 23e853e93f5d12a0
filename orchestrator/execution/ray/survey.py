"""Asks a cluster before anything is written: who is there, what fits, and whether its nodes can run trials.

Another process does so, since Ray prints what it likes, and can be asked once a process only.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from orchestrator.errors import InputError
from orchestrator.execution.ray.node_check import NodeRequirements, marked, needs_of
from orchestrator.execution.ray.ray_settings import token_place
from orchestrator.execution.slots import require_room, slots
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.files.redact import redact, redact_url
from orchestrator.identity import SweepFolder
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Resources

AUTOSCALED = "ray.io/node-group"
"""Label of nodes that somebody may start more of."""
MODULE = "from orchestrator.execution.ray.ray_survey import main; main()"
PATIENCE_S = 180.0
LOOK_S = 0.1
REFUSED = b"InvalidAuthToken"
"""What Ray prints, again and again, where the token is missing or wrong."""
ANSWER_S = 10.0
RUNNING_HERE = "auto"
"""The address of whatever cluster this machine is a node of."""
CLIENT = "ray://"
PORT = 6379
"""That of a head node unless it was started with another one."""


def require_cluster(address: str, plan: Plan, setup: Setup, folder: SweepFolder) -> None:
    """`require_nodes` for the sweep that is, or will be, in `folder`. What it writes is gone afterwards."""
    above = next(path for path in folder.root.resolve().parents if path.is_dir())
    with marked(needs_of(plan, setup), above) as needs:
        require_nodes(address, plan.resources, needs)


def require_nodes(address: str, wanted: Resources, needs: NodeRequirements | None) -> None:
    """Raises InputError unless a cluster is there whose nodes can run trials that ask for `wanted`.

    Without `needs` only what the nodes have is looked at. A cluster that can grow needs no room yet.
    """
    nodes = _asked(address, wanted, needs)
    if not any(AUTOSCALED in node["labels"] for node in nodes):
        require_room([node["resources"] for node in nodes], wanted)
    workers = [node for node in nodes if slots([node["resources"]], wanted)]
    unshared = [node for node in workers if node["unshared"]]
    if unshared:
        raise InputError(
            f"all nodes must share the folder of sweeps, for checkpoints are in it, and {len(unshared)} of "
            f"{len(workers)} do not: {_reasons(unshared)}. Without it a trial that moves begins again, and "
            "posthoc trials lack what they read: give --checkpoints s3://bucket/folder or another store, or "
            "a --runs that is mounted everywhere"
        )
    if workers and all(node["lacks"] for node in workers):
        raise InputError(
            f"a node of the cluster must be able to run trials, and none can: {_reasons(workers)}"
        )


def _reasons(nodes: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"{node['name']}: {'; '.join(node['lacks'])}" for node in nodes)


def _asked(address: str, wanted: Resources, needs: NodeRequirements | None) -> list[dict[str, Any]]:
    """What each node of the cluster has, and what those say that a trial fits on."""
    question = {
        "address": address,
        "wanted": {"cpus": wanted.cpus, "gpus": wanted.gpus},
        "needs": None if needs is None else needs.to_json(),
    }
    with tempfile.TemporaryFile() as noise, tempfile.TemporaryFile("w+") as asked:
        asked.write(json.dumps(question) + "\n")
        asked.seek(0)
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module  # nosec B603
            [sys.executable, "-c", MODULE], stdin=asked, stdout=subprocess.PIPE, stderr=noise, text=True
        )
        try:
            _watch(process, noise, address)
            out, _ = process.communicate()
        finally:
            process.kill()
            process.wait()
    lines = [line for line in out.splitlines() if line.startswith('{"')]
    if not lines:
        raise no_cluster(address, f"Ray ended with code {process.returncode} and said nothing")
    found = json.loads(lines[-1])
    if "fault" in found:
        raise no_cluster(address, redact(found["fault"].partition("\n")[0]))
    return list(found["nodes"])


def _watch(process: "subprocess.Popen[str]", noise: IO[bytes], address: str) -> None:
    """Until the process has ended. Raises InputError once it is clear that it will find nothing."""
    until = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        noise.seek(0)
        if REFUSED in noise.read():
            raise _wrong_token(address)
        if time.monotonic() > until:
            raise no_cluster(address, f"it gave no answer for {PATIENCE_S:.0f} s")
        time.sleep(LOOK_S)


def _wrong_token(address: str) -> InputError:
    place = token_place()
    found = f"the one in {place} is not its" if place else "there is none here"
    return InputError(
        f"the cluster at {address} asks for a token, and {found}; copy ~/.ray/auth_token from its head node, "
        "or set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
    )


def check_address(address: str) -> None:
    """Raises InputError unless `address` is HOST:PORT, and something listens there."""
    if address == RUNNING_HERE:
        return
    if address.startswith(CLIENT):
        host = address.removeprefix(CLIENT).rpartition("@")[2].partition(":")[0] or "HOST"
        raise no_cluster(
            address,
            "a Ray client has no node of its own, and Ray Tune runs on a node; launch on a machine of the "
            f"cluster with the address of its head, {host}:{PORT} unless it was started with another --port",
        )
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise no_cluster(address, "it is not of the form HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
    except (OSError, UnicodeError) as error:
        raise no_cluster(address, error) from error


def no_cluster(address: str, why: object) -> InputError:
    """What is said when there is no cluster at `address`."""
    return InputError(
        f"--address must be that of a running Ray cluster, got {redact_url(address)!r}: {why}; "
        "see `ray status`, set RAY_AUTH_MODE=token if it has tokens, or leave it out to use this machine"
    )
