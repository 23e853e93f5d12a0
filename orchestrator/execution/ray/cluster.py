"""Connect to an existing Ray cluster, or to a private Ray on this machine that ends with its driver."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from orchestrator.execution.ray.driver import DriverOrder
from orchestrator.execution.ray.nodes import Nodes, living_nodes
from orchestrator.execution.ray.sent_code import runtime_environment
from orchestrator.execution.ray.survey import no_cluster_error
from orchestrator.execution.slots import count_slots, require_room
from orchestrator.spec.section import Resources

NODE_REFRESH_S = 2.0
"""Seconds after which the nodes of a cluster are listed again, since nodes join and leave."""
NODE_CHECK_REFRESH_S = 0.1
"""Seconds after which the nodes are listed again while nodes are being checked."""
OBJECT_STORE_BYTES = 100 << 20
"""Bytes of the object store of a private Ray; no large objects pass through it."""
QUIET_OPTIONS: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


@contextmanager
def connect(order: DriverOrder, scratch: Path) -> Iterator[None]:
    """Connect to the Ray cluster of an order; `ray_environment` must be set before Ray is imported.

    Args:
        order: Address of a cluster, or the number of CPUs of a private Ray, by default all CPUs of this
            process.
        scratch: Folder for files of a private Ray.

    Raises:
        InputError: No cluster is at the address.
    """
    try:
        if order.address is None:
            ray.init(
                address="local",  # ignores RAY_ADDRESS
                num_cpus=order.num_cpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=str(scratch),
                **QUIET_OPTIONS,
            )
        else:
            with runtime_environment({} if order.needs is None else order.needs.sent) as environment:
                try:
                    ray.init(address=order.address, runtime_env=environment, **QUIET_OPTIONS)
                except (ConnectionError, ValueError, RuntimeError) as error:
                    raise no_cluster_error(order.address, error) from error
        for name in ("ray.tune", "ray.air", "ray.train"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        yield
    finally:
        ray.shutdown()


def slot_counter(resources: Resources, nodes: Nodes | None = None) -> Callable[[], int]:
    """Return a function that counts the trials that fit on the connected cluster.

    An existing cluster has at least one slot once all nodes have been checked, since an autoscaler adds nodes
    only while a trial waits for a slot.

    Args:
        resources: Resources of a trial.
        nodes: Nodes of an existing cluster; None for a private Ray.

    Raises:
        InputError: No trial fits on a private Ray.
        RuntimeError: Raised by the returned function if a private Ray has lost its node.
    """
    num_slots = require_room(_node_resources(), resources) if nodes is None else nodes.count_free_slots()
    read_at = time.monotonic()

    def count() -> int:
        nonlocal num_slots, read_at
        if time.monotonic() - read_at >= (
            NODE_CHECK_REFRESH_S if nodes is not None and nodes.is_checking else NODE_REFRESH_S
        ):
            num_slots = (
                count_slots(_node_resources(), resources) if nodes is None else nodes.count_free_slots()
            )
            read_at = time.monotonic()
            if nodes is None and not num_slots:
                raise RuntimeError("its only node is gone")
        return num_slots if nodes is None or nodes.is_checking else max(num_slots, 1)

    return count


def _node_resources() -> list[dict[str, float]]:
    return [node["Resources"] for node in living_nodes()]
