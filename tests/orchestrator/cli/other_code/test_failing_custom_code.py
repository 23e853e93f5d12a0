"""Custom code that raises or ends the process during planning is reported with its line."""

import json
import re

import pytest

from tests.support.training_code.own_code import forgotten

pytestmark = pytest.mark.usefixtures("untracked")

SPEC = """
name: others
question: Does the message name the failing line?
trainable: theirs:train
baseline: {lr: 0.1}
arms: {more: {why: another rate, set: {lr: 0.2}}}
confirm: {seeds: [1, 2]}
"""
TRAINING_CODE = "def train(settings, trial):\n    trial.report(1, {'valid/score': 1.0})\n"
BUILD_DECLARATION = "haltsweep = {'build': build}\n"
EXITING_BUILD = "def build(settings):\n    raise SystemExit(0)\n" + BUILD_DECLARATION
EXITING_IMPORT = "import os\nos._exit(0)\n"
CRASHING_IMPORT = "import ctypes\nctypes.string_at(0)\n"
EXITING_PROCESS = "import os\ndef build(settings):\n    os._exit(0)\n" + BUILD_DECLARATION


@pytest.fixture
def folder(tmp_path):
    with forgotten(tmp_path):
        yield tmp_path


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (EXITING_BUILD, "theirs.py:4: SystemExit"),
        (EXITING_IMPORT, "theirs.py:4: SystemExit: os._exit(0)"),
        (EXITING_PROCESS, "exit code 0"),
        (CRASHING_IMPORT, "others.yaml:4: trainable: "),
        ("raise GeneratorExit\n", "theirs.py:3: GeneratorExit"),
    ],
    ids=["exit-in-build", "exit-at-import", "process-exit-in-build", "segfault", "generator-exit"],
)
def test_failing_custom_code_is_bad_input_and_other_specs_are_checked(folder, haltsweep, code, expected):
    (folder / "theirs.py").write_text(TRAINING_CODE + code)
    (folder / "fine.py").write_text(TRAINING_CODE)
    (folder / "others.yaml").write_text(SPEC)
    (folder / "fine.yaml").write_text(SPEC.replace("theirs:", "fine:"))
    result = haltsweep("check", "others.yaml", "fine.yaml")
    assert result.code == 2
    assert expected in result.err
    assert "Traceback" not in result.err
    assert "haltsweep logs" not in result.err, "no trial has run"
    assert "fine.yaml: ok" in result.out


def test_output_of_custom_code_goes_to_standard_error(folder, haltsweep):
    (folder / "theirs.py").write_text("print('imported')\n" + TRAINING_CODE)
    (folder / "others.yaml").write_text(SPEC)
    result = haltsweep("plan", "others.yaml", "--json")
    assert result.code == 0
    assert json.loads(result.out)["name"] == "others"
    assert "imported" in result.err


@pytest.mark.parametrize("exception", ["GeneratorExit", "SystemExit(0)"])
def test_trial_that_raises_a_base_exception_is_crashed(folder, haltsweep, exception):
    (folder / "theirs.py").write_text(f"def train(settings, trial):\n    raise {exception}\n")
    (folder / "others.yaml").write_text(SPEC)
    result = haltsweep("launch", "others.yaml", "on_error=continue", "--driver", "inline")
    assert result.code == 1
    assert "Traceback" not in result.err
    assert "4 crashed" in result.out


FAILING_SEARCH = """\
name: others
question: Does the other kind work?
trainable: theirs:train
baseline: {lr: 0.1, kind: good}
arms: {bad: {why: it raises, set: {kind: bad}}}
search: {also: {lr: {float: [0.01, 0.5]}}, sampler: random, trials_per_arm: 1,
         objectives: [{metric: valid/accuracy, goal: max}]}
confirm: {seeds: [1, 2], splits: []}
"""
FAILING_ARM_CODE = """\
def train(settings, trial):
    if settings["kind"] == "bad":
        raise ValueError("no such kind")
    trial.report(1, {"valid/accuracy": settings["lr"]})
"""


def test_trials_that_never_started_are_not_reported_as_crashed(folder, haltsweep):
    (folder / "theirs.py").write_text(FAILING_ARM_CODE)
    (folder / "others.yaml").write_text(FAILING_SEARCH)
    result = haltsweep("launch", "others.yaml", "--driver", "inline", "--tracking", "none")
    assert result.code == 1
    assert "3 crashed, 3 finished" in result.out
    result = haltsweep("status", "others", "--trials")
    assert len(re.findall(r"│ crashed +│", result.out)) == 1
