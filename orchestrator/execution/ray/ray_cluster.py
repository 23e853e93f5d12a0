"""A Ray to run on: an existing cluster, or one of this machine's own that leaves nothing behind."""

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import ray

from orchestrator.errors import ExecutorError
from orchestrator.execution.ray.ray_nodes import Nodes, alive
from orchestrator.execution.ray.ray_settings import redacted_entrypoint, without_spare_servers
from orchestrator.execution.ray.sent_code import runtime_environment
from orchestrator.execution.ray.survey import no_cluster
from orchestrator.execution.slots import require_room, slots
from orchestrator.files.abandoned import RAY, clear_abandoned, short_folder
from orchestrator.spec.section import Resources
from trainables.process_identity import process_label

REREAD_S = 2.0
"""Nodes come and go: how old the known state of a cluster may be."""
ANSWER_S = 0.1
"""The same while a node is asked whether it can run trials."""
OBJECT_STORE_BYTES = 100 << 20
"""Nothing large passes through Ray."""
STARTS = 3
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


@contextmanager
def cluster(
    address: str | None, num_cpus: int | None, sent: Mapping[str, str] | None = None
) -> Iterator[Path]:
    """A connection to Ray while it is open; yields a scratch folder on this machine.

    To be entered inside `ray_environment`. `address` None starts a Ray that ends with this process, and
    `num_cpus` None gives it all CPUs that this process may use. What is `sent`, see
    `code_to_send`, reaches the workers of a cluster at `address`; those of our own find all code where it is.
    Raises InputError if there is no cluster at `address`, ExecutorError if none can be started here.
    """
    clear_abandoned()
    scratch = Path(tempfile.mkdtemp(prefix=f"{RAY}{process_label()}-", dir=short_folder()))
    try:
        _connect(address, num_cpus, scratch, sent or {})
        for name in ("ray.tune", "ray.air", "ray.train"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        yield scratch
    finally:
        ray.shutdown()
        shutil.rmtree(scratch, ignore_errors=True)


def slot_counter(wanted: Resources, nodes: Nodes | None = None) -> Callable[[], int]:
    """Counts the trials that fit on the connected cluster, looking anew every `REREAD_S`.

    The `nodes` of a cluster that is not ours may become more: it always has one slot once all have answered,
    for asking is what makes a cluster grow. Raises InputError if nothing fits on one that is ours; its count
    raises RuntimeError when that lost its node.
    """
    known = require_room(_nodes(), wanted) if nodes is None else nodes.look()
    read_at = time.monotonic()

    def count() -> int:
        nonlocal known, read_at
        if time.monotonic() - read_at >= (ANSWER_S if nodes is not None and nodes.asking else REREAD_S):
            known = slots(_nodes(), wanted) if nodes is None else nodes.look()
            read_at = time.monotonic()
            if nodes is None and not known:
                raise RuntimeError("its only node is gone")
        return known if nodes is None or nodes.asking else max(known, 1)

    return count


def servers() -> dict[str, int]:
    """Name and process id of the servers that this process started and Ray cannot do without."""
    node: Any = ray._private.worker._global_node  # nowhere else to be had
    return {name: node.all_processes[name][0].process.pid for name in ("gcs_server", "raylet")}


def head() -> str:
    """HOST:PORT of the head of the connected cluster."""
    return str(ray.get_runtime_context().gcs_address)


def _connect(address: str | None, num_cpus: int | None, scratch: Path, sent: Mapping[str, str]) -> None:
    if address is None:
        _start(num_cpus, scratch)
        return
    try:
        with redacted_entrypoint(), runtime_environment(sent) as environment:
            ray.init(address=address, runtime_env=environment, **QUIET)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise no_cluster(address, error) from error


def _start(num_cpus: int | None, scratch: Path) -> None:
    """A Ray on this machine. Ray gives its processes 30 s to come up, which a busy machine may exceed."""
    before = set(psutil.Process().children())
    for attempt in range(STARTS):
        try:
            with redacted_entrypoint(), without_spare_servers():
                ray.init(
                    address="local",  # whatever RAY_ADDRESS says
                    num_cpus=num_cpus,
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    _temp_dir=str(scratch / str(attempt)),
                    **QUIET,
                )
        except Exception as error:  # that is what Ray raises, without a class of its own
            fault = error
            ray.shutdown()
            for process in set(psutil.Process().children()) - before:
                process.kill()
        else:
            return
    raise ExecutorError(
        f"Ray must start on this machine, and did not in {STARTS} tries: {fault}; "
        "try again when the machine is less busy, or with `--driver inline`, which needs no Ray"
    ) from fault


def _nodes() -> list[dict[str, float]]:
    return [node["Resources"] for node in alive()]
