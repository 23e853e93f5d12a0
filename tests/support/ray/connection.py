"""A private Ray in the process of a test."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from orchestrator.execution.ray.driver import DriverOrder
from orchestrator.execution.ray.environment import ray_environment
from orchestrator.files.abandoned_folders import short_folder
from orchestrator.spec.section import Resources


def driver_environment() -> Mapping[str, str]:
    """Return variables for a Ray without a token, since test modules import Ray before any token is set.

    Every import of Ray in a test process needs these variables, because Ray reads them at its first import.
    """
    with patch.dict(os.environ, {"RAY_AUTH_MODE": "disabled"}):
        return {**ray_environment(private=True), "RAY_AUTH_MODE": "disabled"}


@contextmanager
def private_ray(num_cpus: int) -> Iterator[None]:
    """Connect this process to a Ray cluster that no other process uses."""
    with (
        patch.dict(os.environ, driver_environment()),
        TemporaryDirectory(prefix="hs-test-", dir=short_folder()) as scratch,
    ):
        from orchestrator.execution.ray.cluster import connect

        with connect(DriverOrder(Resources(), num_cpus=num_cpus), Path(scratch)):
            yield
