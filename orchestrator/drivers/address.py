"""Whether anybody is at the address of a Ray cluster: asked before data are built and anything is written."""

import socket

from orchestrator.errors import InputError
from orchestrator.redact import redact_url

ANSWER_S = 10.0
RUNNING_HERE = "auto"
"""The address of whatever cluster this machine is a node of."""
CLIENT = "ray://"
PORT = 6379
"""That of a head node unless it was started with another one."""


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
