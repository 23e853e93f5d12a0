"""A private Ray is out of reach of other machines."""

import json
import subprocess
import sys
from ipaddress import ip_address

import pytest

LISTENING = """
import json, psutil
from tests.support.ray.connection import private_ray
with private_ray(1):
    import ray
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
