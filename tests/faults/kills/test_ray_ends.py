"""Ray's servers, a whole Ray cluster, or a foreign cluster is killed while a sweep runs."""

import re
from collections import Counter

import psutil
import pytest

from orchestrator.ledger.events import EventKind
from tests.faults.kills.chaos import check_log
from tests.faults.kills.ray_launcher import RESTARTS, killable_sweep
from tests.faults.kills.test_ray_faults import (
    events_of,
    finish_without_ray,
    foreign_cluster,
    launcher,
    repeated_steps,
    wait_for_progress,
    workers,
)
from tests.support.processes.commands import PATIENCE_S
from tests.support.processes.process_lookup import descendants, end, wait_until
from tests.support.sweeps.workloads import HOLD

pytestmark = pytest.mark.slow
GCS = "gcs_server"
HELPERS = ("ray::Ru", "ray::Dash")
"""Agents that a raylet starts; the raylet ends without them."""
VICTIMS = [HELPERS, (GCS,)]
"""Processes to kill, one group after the other; Ray restarts in between. The raylet ends with its helpers."""


def find_servers(process, *names):
    """Find Ray's processes below a launcher by name or command line."""
    matches = []
    for event in descendants(process):
        try:
            if any(name in event.name() or name in " ".join(event.cmdline()[:4]) for name in names):
                matches.append(event)
        except psutil.NoSuchProcess:
            continue
    return matches


def read_output(root):
    return (root / "output.txt").read_text(errors="replace")


def count_losses(root):
    """Count the lost attempts of each trial."""
    ends = [event for event in events_of(root) if event.kind is EventKind.ENDED and event.payload.get("lost")]
    return Counter(end.trial_id for end in ends)


def check_results(root, kills):
    """Assert that nothing is lost or doubled, and that no more was repeated than the kills explain."""
    check_log(events_of(root), killable_sweep(root).plan)
    ends = [event.payload for event in events_of(root) if event.kind is EventKind.ENDED]
    assert {end["kind"] for end in ends} <= {"finished", "stopped"}
    assert sum(count_losses(root).values()) <= 2 * kills, (
        "two trials run at a time, and each loss counts once"
    )
    assert sum(repeated_steps(root).values()) <= 2 * kills * 3


def test_private_ray_restarts_until_its_limit_and_the_sweep_resumes(tmp_path):
    hold = killable_sweep(tmp_path).data / HOLD
    with launcher(tmp_path) as process:
        for number, names in enumerate(VICTIMS, start=1):
            wait_for_progress(tmp_path, process)
            hold.touch()  # else all trials might be over before the raylet ends
            victims = find_servers(process, *names)
            assert len(victims) == len(names)
            old_processes = [*victims, *workers(process)]
            end(victims)
            if number < len(VICTIMS):
                pattern = rf"^warned: .* {number} .*{RESTARTS}\b"
                wait_until(lambda: re.search(pattern, read_output(tmp_path), re.MULTILINE), "it restarts")  # noqa: B023
                _, survivors = psutil.wait_procs(old_processes, timeout=PATIENCE_S)
                assert not survivors, "workers end with the Ray that they belong to"
                hold.unlink()
        assert process.wait(PATIENCE_S) == 1
    lines = read_output(tmp_path).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["warned"] * RESTARTS + ["error"], (
        "no output of Ray must be shown"
    )
    # Ray reports either the raylet, which dies with its agents, or the lost node.
    assert re.search(r"raylet \(process |RuntimeError: ", lines[VICTIMS.index(HELPERS)])
    assert "gcs_server (process" in lines[-1]
    assert sum(count_losses(tmp_path).values()) >= len(VICTIMS)
    hold.unlink()
    finish_without_ray(tmp_path)
    check_results(tmp_path, kills=len(VICTIMS))


def test_death_of_a_foreign_ray_is_one_error(tmp_path, monkeypatch):
    with foreign_cluster(tmp_path, monkeypatch) as (cluster, address), launcher(tmp_path, address) as process:
        wait_for_progress(tmp_path, cluster)
        end([cluster, *descendants(cluster)])
        assert process.wait(PATIENCE_S) == 1
    (line,) = [line for line in read_output(tmp_path).splitlines() if line.startswith("error:")]
    assert f" {address} " in line
    finish_without_ray(tmp_path)
    check_results(tmp_path, kills=1)
