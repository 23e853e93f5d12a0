"""A Ray to run on: an existing cluster, or one of this machine's own that leaves nothing behind."""

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import ray

from orchestrator.drivers.address import no_cluster
from orchestrator.drivers.slots import require_room, slots
from orchestrator.errors import ExecutorError
from orchestrator.plan.types import Resources

REREAD_S = 2.0
"""Nodes come and go: how old the known state of a cluster may be."""
OBJECT_STORE_BYTES = 100 << 20
"""Nothing large passes through Ray."""
PREFIX = "haltsweep-ray-"
STARTS = 3
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


@contextmanager
def cluster(address: str | None, num_cpus: int | None) -> Iterator[Path]:
    """A connection to Ray while it is open; yields a scratch folder on this machine.

    To be entered inside `ray_environment`. `address` None starts a Ray that ends with this process, and
    `num_cpus` None gives it all CPUs that this process may use.
    Raises InputError if there is no cluster at `address`, ExecutorError if none can be started here.
    """
    _sweep_up()
    scratch = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=_short_folder()))
    try:
        _connect(address, num_cpus, scratch)
        for name in ("ray.tune", "ray.air", "ray.train"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        yield scratch
    finally:
        ray.shutdown()
        shutil.rmtree(scratch, ignore_errors=True)


def slot_counter(wanted: Resources, *, elastic: bool) -> Callable[[], int]:
    """Counts the trials that fit on the connected cluster, looking anew every `REREAD_S`.

    An `elastic` cluster always has one slot: asking for it is what makes a cluster grow. Raises InputError
    if nothing fits on a cluster that cannot grow.
    """
    known = slots(_nodes(), wanted) if elastic else require_room(_nodes(), wanted)
    read_at = time.monotonic()

    def count() -> int:
        nonlocal known, read_at
        if time.monotonic() - read_at >= REREAD_S:
            known, read_at = slots(_nodes(), wanted), time.monotonic()
        return max(known, 1) if elastic else known

    return count


def _connect(address: str | None, num_cpus: int | None, scratch: Path) -> None:
    if address is None:
        _start(num_cpus, scratch)
        return
    try:
        ray.init(address=address, **QUIET)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise no_cluster(address, error) from error


def _start(num_cpus: int | None, scratch: Path) -> None:
    """A Ray on this machine. Ray gives its processes 30 s to come up, which a busy machine may exceed."""
    before = set(psutil.Process().children())
    for attempt in range(STARTS):
        try:
            ray.init(
                num_cpus=num_cpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=str(scratch / f"r{attempt}"),
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
        "resume the sweep when the machine is less busy, or with `--driver inline`, which needs no Ray"
    ) from fault


def _nodes() -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _short_folder() -> Path:
    # Ray makes sockets below it, whose paths may have 107 bytes.
    folder = Path(tempfile.gettempdir())
    return folder if len(str(folder)) <= 30 else Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder in it


def _sweep_up() -> None:
    """Remove what killed processes of this user left behind."""
    for folder in _short_folder().glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)) and folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)
