"""What a private Ray shows and starts: no password, no unused server, none that other machines reach."""

import json
import subprocess
import sys
from ipaddress import ip_address

import pytest

from orchestrator.execution.ray.ray_cluster import cluster
from orchestrator.execution.ray.ray_settings import ray_environment
from tests.support.training_code.secrets import MARKER


@pytest.mark.slow
def test_the_password_of_a_command_line_does_not_reach_ray(monkeypatch):
    import ray
    import ray._private.state as state

    url = f"http://ann:{MARKER}@host"
    monkeypatch.setattr(sys, "argv", ["haltsweep", "launch", "tiny.yaml", "--tracking", url])
    with ray_environment(private=True), cluster(None, 1):
        jobs = state.jobs()
        processes = set(ray._private.worker._global_node.all_processes)
    assert [job["Entrypoint"] for job in jobs] == [
        "haltsweep launch tiny.yaml --tracking 'http://ann:***@host'"
    ]
    assert {"gcs_server", "raylet"} <= processes
    assert not processes & {"log_monitor", "monitor", "dashboard"}, "they cost seconds of processor time"


LISTENING = """
import json, psutil
from orchestrator.execution.ray.ray_settings import ray_environment
with ray_environment(private=True):
    import ray
    from orchestrator.execution.ray.ray_cluster import cluster
    with cluster(None, 1):
        ray.get(ray.remote(lambda: None).remote())  # a worker listens, too
        me = psutil.Process()
        print(json.dumps([
            [each.name(), socket.laddr.ip]
            for each in (me, *me.children(recursive=True))
            for socket in each.net_connections("inet")
            if socket.status == psutil.CONN_LISTEN
        ]))
"""


@pytest.mark.slow
def test_a_private_ray_listens_on_the_loopback_address_alone():
    """In a fresh interpreter, since Ray reads where to listen when it is imported."""
    done = subprocess.run([sys.executable, "-c", LISTENING], capture_output=True, text=True, check=True)
    listening = json.loads(done.stdout.splitlines()[-1])
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    assert len(listening) >= 4, listening
    for name, address in listening:
        ip = ip_address(address)
        assert (getattr(ip, "ipv4_mapped", None) or ip).is_loopback, (name, address)
