"""Ray's workers and their launcher are killed; a later session continues without loss."""

import os
import secrets
from contextlib import contextmanager, suppress
from ipaddress import ip_address

import psutil
import pytest

from orchestrator.errors import StoreError
from orchestrator.ledger.events import EventKind
from tests.faults.kills.chaos import check_log, launch_or_resume
from tests.faults.kills.ray_launcher import killable_sweep
from tests.support.processes.forks import forks, run_module
from tests.support.processes.process_lookup import (
    AGENTS,
    WAIT_S,
    WORKERS,
    descendants,
    end,
    wait_until,
    with_prefix,
)
from tests.support.sweeps.workloads import HURRY

pytestmark = pytest.mark.slow


@contextmanager
def launcher(root, *arguments):
    """Start a session; end it and all its subprocesses afterwards."""
    process = run_module(
        "tests.faults.kills.ray_launcher", root, *arguments, output=root / "output.txt", session=True
    )
    try:
        yield process
    finally:
        end([process, *descendants(process)])


@contextmanager
def foreign_cluster(root, monkeypatch):
    """Start a foreign Ray cluster with a token; yield its process and its address."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    address = root / "address"
    with launcher(root, "-", address) as cluster:
        wait_until(lambda: address.exists() and address.read_text(), "the cluster is up")
        yield cluster, address.read_text()


@contextmanager
def subprocesses(process):
    """Yield the subprocesses except for two agents of Ray, which hold nothing and end after a minute."""
    family = descendants(process)
    agents = with_prefix(family, *AGENTS)
    try:
        yield [process for process in family if process not in agents]
    finally:
        end(agents)


def events_of(root):
    with suppress(StoreError):
        return killable_sweep(root).events()
    return []


def count_measurements(root):
    return sum(event.kind is EventKind.MEASURED for event in events_of(root))


def workers(process):
    """Find Ray's workers that run a trial."""
    return with_prefix(descendants(process), WORKERS)


def wait_for_progress(root, process):
    """Wait until new steps are measured and workers run below `process`."""
    num_measured = count_measurements(root)
    wait_until(
        lambda: count_measurements(root) >= num_measured + 5 and workers(process), "trials are under way"
    )


def check_private(process):
    """Assert that all servers and workers of a private Ray listen on the loopback address only."""
    addresses = []
    for descendant in descendants(process):
        with suppress(psutil.NoSuchProcess):
            sockets = [
                connection
                for connection in descendant.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN
            ]
            addresses += [(descendant.name(), ip_address(connection.laddr.ip)) for connection in sockets]
    assert {"gcs_server", "raylet"} <= {name for name, _ in addresses}
    for name, ip in addresses:
        assert (getattr(ip, "ipv4_mapped", None) or ip).is_loopback, (name, ip)


def repeated_steps(root):
    counts = killable_sweep(root).count_steps()
    return {line: times - 1 for line, times in counts.items() if times > 1}


def finish_without_ray(root):
    """Run the rest of the sweep without Ray, which is slow to start."""
    process = forks.Process(target=_finish_hurriedly, args=(root,))
    process.start()
    process.join(WAIT_S)
    assert process.exitcode == 0


def _finish_hurriedly(root):
    os.environ[HURRY] = "1"
    launch_or_resume(killable_sweep(root))


def test_sweep_on_ray_survives_the_kill_of_a_worker_and_of_its_launcher(tmp_path):
    with launcher(tmp_path) as process:
        wait_for_progress(tmp_path, process)
        check_private(process)
        workers(process)[0].kill()
        wait_for_progress(tmp_path, process)
        with subprocesses(process) as family:
            process.kill()
            _, survivors = psutil.wait_procs(family, timeout=WAIT_S)
            assert not survivors, "subprocesses must end with the launcher"
    finish_without_ray(tmp_path)
    events = events_of(tmp_path)
    check_log(events, killable_sweep(tmp_path).plan)
    ends = [event.payload for event in events if event.kind is EventKind.ENDED]
    assert all(end["kind"] in {"finished", "stopped"} for end in ends)
    assert [bool(end.get("outside")) for end in ends if end["kind"] == "stopped"] == [True]
    # Two trials run at a time. A worker that dies loses at most the output of 50 ms and one step.
    assert sum(repeated_steps(tmp_path).values()) <= (1 + 2) * 3
