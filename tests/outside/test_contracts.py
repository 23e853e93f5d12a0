"""Contract tests in users' test files, run by users' pytest."""

import os
import shutil

import pytest

from tests.support.numerics.distributions import PROJECT
from tests.support.processes.forked_pytest import run_pytest

pytest_plugins = ["pytester"]
CHECKED = "padding or causal or Decoder or example or solve"
"""Contract tests of the package that are run; tests of built-in models and tasks run all."""


@pytest.mark.slow
def test_external_package_passes_its_contracts(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(PROJECT, pytester.path, dirs_exist_ok=True)
    path = os.pathsep.join(filter(None, [str(pytester.path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    result = run_pytest(pytester, "-p", "no:cacheprovider", "-rs", "tests", "-v", "-k", CHECKED)
    outcomes = result.parseoutcomes()
    assert outcomes.keys() == {"passed", "skipped", "deselected"}, outcomes
    result.stdout.fnmatch_lines_random(
        [
            "tests/test_gru_kit.py::TestGRU::test_padding_never_leaks?small? PASSED*",
            "tests/test_gru_kit.py::TestGRU::test_padding_never_leaks?deep? PASSED*",
            "tests/test_gru_kit.py::TestMajority::test_no_example_is_in_two_splits?small? PASSED*",
            "SKIPPED*no field causal*",
        ],
    )
