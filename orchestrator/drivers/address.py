"""Whether anybody is at the address of a Ray cluster: asked before data are built and anything is written."""

import socket

from orchestrator.errors import InputError

ANSWER_S = 10.0
FOUND_BY_RAY = ("auto", "local")
"""Addresses that name no host."""


def check_address(address: str) -> None:
    """Raises InputError unless `address` is HOST:PORT, or ray://HOST:PORT, and something listens there."""
    if address in FOUND_BY_RAY:
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise no_cluster(address, "it is not of the form HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
    except (OSError, UnicodeError) as error:
        raise no_cluster(address, error) from error


def no_cluster(address: str, why: object) -> InputError:
    """What is said when there is no cluster at `address`."""
    return InputError(
        f"--address must be that of a running Ray cluster, got {address!r}: {why}; "
        "see `ray status`, set RAY_AUTH_MODE=token if it has tokens, or leave it out to use this machine"
    )
