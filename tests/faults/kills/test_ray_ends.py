"""Ray itself is killed under a sweep: its servers, all of it, a head that is not ours."""

from collections import Counter

import psutil
import pytest

from orchestrator.ledger.events import EventKind
from tests.faults.kills.chaos import check_log
from tests.faults.kills.ray_launcher import place
from tests.faults.kills.test_ray_faults import (
    events_of,
    finish,
    launcher,
    other_cluster,
    steps_repeated,
    under_way,
    workers,
)
from tests.support.processes.commands import PATIENCE_S
from tests.support.processes.process_lookup import descendants, end, wait_until
from tests.support.sweeps.workloads import HOLD

pytestmark = pytest.mark.slow
RAYLET, GCS = "raylet", "gcs_server"
HELPERS = ("ray::Ru", "ray::Dash")
"""Agents that a raylet starts, and ends without."""
DRIVER = "orchestrator.execution.ray.driver_main"
KILLED = [(RAYLET,), HELPERS, (DRIVER,), (GCS,)]
"""One after the other, each in a Ray that was started again."""


def servers(process, *names):
    """Ray's processes below a launcher by name or command line."""
    found = []
    for each in descendants(process):
        try:
            if any(name in each.name() or name in " ".join(each.cmdline()[:4]) for name in names):
                found.append(each)
        except psutil.NoSuchProcess:
            continue
    return found


def output(root):
    return (root / "output.txt").read_text(errors="replace")


def lost(root):
    """How often trials were lost, by trial."""
    ends = [each for each in events_of(root) if each.kind is EventKind.ENDED and each.payload.get("lost")]
    return Counter(each.trial_id for each in ends)


def check_whole(root, kills):
    """Nothing is lost or doubled, and no more was done again than the kills explain."""
    check_log(events_of(root), place(root).plan)
    ends = [each.payload for each in events_of(root) if each.kind is EventKind.ENDED]
    assert {each["kind"] for each in ends} <= {"finished", "stopped"}
    assert sum(lost(root).values()) <= 2 * kills, "two trials run at a time, and each loss counts once"
    assert sum(steps_repeated(root).values()) <= 2 * kills * 3


@pytest.mark.longest
def test_servers_and_helpers_of_a_ray_of_ones_own_are_killed_until_it_is_given_up_then_resumed(tmp_path):
    hold = place(tmp_path).data / HOLD
    with launcher(tmp_path) as process:
        for number, names in enumerate(KILLED, start=1):
            under_way(tmp_path, process)
            hold.touch()  # or all might be over before a raylet ends that has lost its agents
            victims = servers(process, *names)
            assert len(victims) == len(names)
            before = [*victims, *workers(process)]
            end(victims)
            if number < len(KILLED):
                shown = f"it is started again (time {number} of at most 3)"
                wait_until(lambda: shown in output(tmp_path), "a restart is told")  # noqa: B023
                _, alive = psutil.wait_procs(before, timeout=PATIENCE_S)
                assert not alive, "workers end with the Ray that they belong to"
                hold.unlink()
        assert process.wait(PATIENCE_S) == 1
    lines = output(tmp_path).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["warned"] * 3 + ["error"], (
        "nothing of Ray's is shown"
    )
    # Whichever is seen first: the raylet, which dies with its agents, or the node that it was.
    reasons = ("its raylet (process ", "RuntimeError: its only node is gone")
    assert lines[KILLED.index(HELPERS)].startswith(tuple(f"warned: Ray ended: {each}" for each in reasons))
    assert "Ray ended 4 times, most recently because its gcs_server (process" in lines[-1]
    assert sum(lost(tmp_path).values()) >= 4
    hold.unlink()
    finish(tmp_path)
    check_whole(tmp_path, kills=4)


@pytest.mark.longest
def test_a_ray_that_is_not_ours_outlives_a_killed_launcher_and_its_own_death_is_one_error(
    tmp_path, monkeypatch
):
    with other_cluster(tmp_path, monkeypatch) as (cluster, address):
        with launcher(tmp_path, address) as process:
            under_way(tmp_path, cluster)
            process.kill()
            process.wait(PATIENCE_S)
            wait_until(lambda: not workers(cluster), "orphans have ended")
        assert cluster.is_running(), "the cluster is not ours to end"
        with launcher(tmp_path, address) as process:
            under_way(tmp_path, cluster)
            end([cluster, *descendants(cluster)])
            assert process.wait(PATIENCE_S) == 1
    (line,) = [each for each in output(tmp_path).splitlines() if each.startswith("error:")]
    shown = f"error: the Ray cluster at {address} is not available: its "
    assert line.startswith(shown)
    assert line.endswith("resume the sweep when the cluster is available again")
    finish(tmp_path)
    check_whole(tmp_path, kills=2)
