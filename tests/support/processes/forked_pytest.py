"""pytest for the tests of somebody else, in a process of its own that has PyTorch already."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.processes.forks import Forked

LOADED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""pytest warns of plug-ins that are loaded before it comes to them, as haltsweep is here."""


def run_pytest(repository: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """As `repository.runpytest_subprocess`, in a second instead of five: PyTorch is loaded but once."""
    began = time.perf_counter()
    home = repository.path.with_name(f"{repository.path.name}-home")
    home.mkdir(exist_ok=True)
    variables = os.environ | {"PYTHONPATH": str(repository.path), "HOME": str(home)}
    temporary = f"--basetemp={repository.path}/runpytest-{time.monotonic_ns()}"
    code, out, err = pytest_in(repository.path, (temporary, *arguments), variables)
    return pytest.RunResult(code, out.splitlines(), err.splitlines(), time.perf_counter() - began)


def pytest_in(folder: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str, str]:
    """Exit code, output and standard error of pytest there."""
    process = Forked(_pytest, arguments, folder=folder, variables=variables)
    try:
        out, err = process.communicate()
    finally:
        process.end()
    assert process.returncode is not None
    return process.returncode, out, err


def _pytest(arguments: Sequence[str]) -> int:
    sys.path.insert(0, str(Path.cwd()))  # as `python -m pytest` does
    return int(pytest.main([*arguments, *LOADED]))
