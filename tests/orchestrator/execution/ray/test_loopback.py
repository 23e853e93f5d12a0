"""A private Ray accepts no connections from other machines."""

import json
import subprocess
import sys
from ipaddress import ip_address

import pytest

LISTENING_CODE = """
import json, psutil
from tests.support.ray.connection import private_ray
with private_ray(1):
    import ray
    ray.get(ray.remote(lambda: None).remote())  # a worker listens, too
    me = psutil.Process()
    print(json.dumps([
        [process.name(), socket.laddr.ip]
        for process in (me, *me.children(recursive=True))
        for socket in process.net_connections("inet")
        if socket.status == psutil.CONN_LISTEN
    ]))
"""


@pytest.mark.slow
def test_private_ray_listens_only_on_the_loopback_address():
    """The test runs in a fresh interpreter, because Ray reads its address at import."""
    result = subprocess.run(
        [sys.executable, "-c", LISTENING_CODE], capture_output=True, text=True, check=True
    )
    sockets = json.loads(result.stdout.splitlines()[-1])
    assert {"gcs_server", "raylet"} <= {name for name, _ in sockets}
    assert len(sockets) >= 4, sockets
    for name, address in sockets:
        ip = ip_address(address)
        assert (getattr(ip, "ipv4_mapped", None) or ip).is_loopback, (name, address)
