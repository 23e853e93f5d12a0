"""Check a Ray cluster before a launch writes anything."""

import socket
import tempfile
import time
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.execution.ray.driver import DriverEnd, DriverOrder, RayDriver
from orchestrator.execution.ray.environment import token_location
from orchestrator.execution.ray.node_check import NodeRequirements, create_marker_file, node_requirements
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.files.redact import redact, redact_url
from orchestrator.identity import SweepFolder
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Resources

PATIENCE_S = 180.0
POLL_S = 0.1
TOKEN_REFUSAL = b"InvalidAuthToken"
"""Text that Ray prints repeatedly if the token is missing or wrong."""
CONNECT_TIMEOUT_S = 10.0
LOCAL_CLUSTER = "auto"
"""Address that selects the cluster of which this machine is a node."""
CLIENT_SCHEME = "ray://"
DEFAULT_PORT = 6379
"""Default port of a head node, used without `--port`."""


def require_cluster(address: str, plan: Plan, setup: Setup, folder: SweepFolder) -> None:
    """Check the cluster for a sweep in `folder`, which may not exist yet, and leave no files behind.

    Raises:
        InputError: No cluster is at the address, or its nodes cannot run the trials.
    """
    existing_parent = next(path for path in folder.root.resolve().parents if path.is_dir())
    with create_marker_file(node_requirements(plan, setup), existing_parent) as needs:
        require_nodes(address, plan.resources, needs)


def require_nodes(address: str, resources: Resources, needs: NodeRequirements) -> None:
    """Check that a cluster is at `address` and that its nodes can run trials with the resources `resources`.

    Raises:
        InputError: No cluster is at the address, or `Nodes.require_fit` fails.
    """
    order = DriverOrder(resources, address, needs)
    with tempfile.NamedTemporaryFile() as log, RayDriver(order, Path(log.name)) as driver:
        deadline = time.monotonic() + PATIENCE_S
        driver_end: DriverEnd | None = None
        while driver_end is None:
            if driver.poll(POLL_S):
                driver_end = driver.receive()
            if (driver_end is None or driver_end.error) and TOKEN_REFUSAL in Path(log.name).read_bytes():
                raise _token_error(address)
            if driver_end is None and time.monotonic() > deadline:
                raise no_cluster_error(address, f"it gave no answer for {PATIENCE_S:.0f} s")
    if driver_end.kind is not None:
        raise driver_end.kind(driver_end.error)
    if driver_end.error:
        raise no_cluster_error(address, redact(driver_end.error.partition("\n")[0]))


def _token_error(address: str) -> InputError:
    location = token_location()
    fault = f"the one in {location} does not match" if location else "this machine has none"
    return InputError(
        f"the cluster at {address} asks for a token, and {fault}; copy ~/.ray/auth_token from its head node, "
        "or set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
    )


def check_address(address: str) -> None:
    """Raise `InputError` unless `address` has the form HOST:PORT and accepts connections."""
    if address == LOCAL_CLUSTER:
        return
    if address.startswith(CLIENT_SCHEME):
        host = address.removeprefix(CLIENT_SCHEME).rpartition("@")[2].partition(":")[0] or "HOST"
        reason = (
            "Ray Tune must run on a node of the cluster, but a Ray client has none; launch on a machine of "
            f"the cluster with the address of its head, {host}:{DEFAULT_PORT} unless it was started with "
            "another --port"
        )
        raise no_cluster_error(address, reason)
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise no_cluster_error(address, "it is not of the form HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, UnicodeError) as error:
        raise no_cluster_error(address, error) from error


def no_cluster_error(address: str, reason: object) -> InputError:
    """Return the error for an address without a cluster."""
    return InputError(
        f"--address must be that of a running Ray cluster, got {redact_url(address)!r}: {reason}; "
        "see `ray status`, set RAY_AUTH_MODE=token if it has tokens, or omit --address to use this machine"
    )
