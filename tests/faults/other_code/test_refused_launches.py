"""A launch that a cluster cannot run is refused before anything is written."""

import os
import secrets
import sys
import time
from contextlib import contextmanager

import psutil
import pytest

from orchestrator.execution.ray.node_check import node_requirements
from orchestrator.execution.ray.survey import require_nodes
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.spec.section import Resources
from tests.support.processes.commands import PATIENCE_S, Shell
from tests.support.specs.plans import make_plan
from tests.support.sweeps.workloads import PATH

pytestmark = pytest.mark.slow
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def cluster(folder, **variables):
    """Start a Ray cluster of one node with two CPUs; yield its address."""
    file = folder / f"address-{secrets.token_hex(4)}"
    command = [sys.executable, "-m", "tests.faults.kills.ray_launcher", str(folder), "-", str(file)]
    process = psutil.Popen(command, env={**os.environ, **TOKEN, **variables})
    try:
        until = time.monotonic() + PATIENCE_S
        while not (file.exists() and file.read_text()):
            assert process.poll() is None, "the cluster must come up"
            assert time.monotonic() < until, "waited too long"
            time.sleep(0.1)
        yield file.read_text()
    finally:
        family = [process, *process.children(recursive=True)]
        for member in family:
            member.kill()
        psutil.wait_procs(family, timeout=PATIENCE_S)


def test_request_that_no_node_satisfies_is_refused(tmp_path):
    shell = Shell.at(tmp_path)
    with cluster(tmp_path) as address:
        for option, amount in (("--gpus", "1"), ("--cpus", "3")):
            answer = shell.run("launch", "tiny.yaml", "--address", address, option, amount, **TOKEN)
            assert answer.code == 2, answer.err
            message = " ".join(answer.err.split())
            assert "cpus=" in message
            assert "CPU=2 GPU=0" in message
            assert "Traceback" not in answer.err
            assert [path.name for path in shell.folder.iterdir()] == ["tiny.yaml"]


def test_growing_cluster_is_asked_for_its_nodes(tmp_path, monkeypatch):
    with cluster(tmp_path, RAY_NODE_TYPE_NAME="workers") as address:
        for name, value in TOKEN.items():
            monkeypatch.setenv(name, value)
        requirements = node_requirements(make_plan(), Setup(tmp_path, PATH, checkpoints=f"file://{tmp_path}"))
        require_nodes(address, Resources(gpus=1), requirements)


def test_ray_address_in_the_environment_is_ignored_by_a_private_ray():
    code = (
        "from tests.support.ray.connection import private_ray\n"
        "with private_ray(3):\n"
        "    import ray\n"
        "    assert ray.cluster_resources()['CPU'] == 3"
    )
    environment = {**os.environ, "RAY_ADDRESS": "ray://127.0.0.1:1"}
    assert psutil.Popen([sys.executable, "-c", code], env=environment).wait(PATIENCE_S) == 0
