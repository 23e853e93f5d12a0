"""Contract tests in users' test files, run by users' pytest."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.numerics.distributions import PROJECT
from tests.support.processes.commands import PATIENCE_S

pytest_plugins = ["pytester"]
ONE_LINE = "from trainables.testing import {kind}_contract\ntest_it = {kind}_contract({arguments})\n"


def run(folder: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return folder.runpytest_subprocess("-p", "no:cacheprovider", "-rs", *arguments)


@pytest.mark.slow
def test_external_package_passes_its_contracts(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(PROJECT, pytester.path, dirs_exist_ok=True)
    path = os.pathsep.join(filter(None, [str(pytester.path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    result = run(pytester, "tests", "-v")
    outcomes = result.parseoutcomes()
    assert outcomes.keys() == {"passed", "skipped"}, outcomes
    result.stdout.fnmatch_lines_random(
        [
            "tests/test_gru_kit.py::TestGRU::test_padding_never_leaks?small? PASSED*",
            "tests/test_gru_kit.py::TestGRU::test_padding_never_leaks?deep? PASSED*",
            "tests/test_gru_kit.py::TestMajority::test_no_example_is_in_two_splits?small? PASSED*",
            "SKIPPED*no field causal*",
            "SKIPPED*no class Decoder*",
        ],
    )


HEADING = r"^_+ ERROR collecting test_(\w+)\.py _+$"
UNTESTABLE = {
    "unknown": ("model", '"univrsal"', "no model named 'univrsal'. Did you mean 'universal'?"),
    "unnamed": ("model", '""', "a contract must name its model, got none; set `model` in the class"),
    "setting": ("model", '"universal", {"widht": 3}', "widht"),
    "task": ("task", '"listopps"', "no task named 'listopps'. Did you mean 'listops'?"),
    "trainable": ("trainable", '"math:sqrt"', "math:sqrt cannot be called as train(settings, trial)"),
}


@pytest.mark.slow
def test_untestable_subject_is_one_error(pytester: pytest.Pytester) -> None:
    """One process runs all files, because it imports PyTorch once; each file is a separate error."""
    for name, (kind, arguments, _) in UNTESTABLE.items():
        pytester.makepyfile(**{f"test_{name}": ONE_LINE.format(kind=kind, arguments=arguments)})
    result = run(pytester)
    result.assert_outcomes(errors=len(UNTESTABLE))
    shown = str(result.stdout)
    assert "Traceback" not in shown
    assert "contract.py" not in shown
    sections = re.split(HEADING, shown.partition("short test summary info")[0], flags=re.MULTILINE)[1:]
    output = dict(zip(sections[::2], sections[1::2], strict=True))
    assert output.keys() == UNTESTABLE.keys()
    assert [name for name, (*_, message) in UNTESTABLE.items() if message not in output[name]] == []


@pytest.mark.slow
def test_without_pytest_the_error_names_the_package() -> None:
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "from trainables.testing import model_contract\n"
        "try: model_contract('universal')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout.strip() == "contract tests are run by pytest: pip install pytest", done.stderr
