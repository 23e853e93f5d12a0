"""What a Ray of our own shows and starts: no password of a command line, no server that nobody asks."""

import sys

import pytest

from orchestrator.drivers.ray_cluster import cluster
from orchestrator.drivers.ray_settings import ray_environment
from tests.support.secrets import MARKER


@pytest.mark.slow
def test_the_password_of_a_command_line_does_not_reach_ray(monkeypatch):
    import ray
    import ray._private.state as state

    url = f"http://ann:{MARKER}@host"
    monkeypatch.setattr(sys, "argv", ["haltsweep", "launch", "tiny.yaml", "--tracking", url])
    with ray_environment(private=True), cluster(None, 1):
        jobs = state.jobs()
        processes = set(ray._private.worker._global_node.all_processes)
    assert [job["Entrypoint"] for job in jobs] == [
        "haltsweep launch tiny.yaml --tracking 'http://ann:***@host'"
    ]
    assert {"gcs_server", "raylet"} <= processes
    assert not processes & {"log_monitor", "monitor", "dashboard"}, "they cost seconds of processor time"
