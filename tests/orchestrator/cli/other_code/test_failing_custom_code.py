"""Custom code that raises or ends the process during planning is reported with its line."""

import json
import re

import pytest

from tests.support.processes.commands import TINY
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
UNPRINTABLE_ERROR = (
    "class Odd(Exception):\n    def __str__(self):\n        raise RuntimeError\n"
    "def build(settings):\n    raise Odd\n" + BUILD_DECLARATION
)
FAILING_GETATTR = "def __getattr__(name):\n    1 / 0\n"


EXITING_IMPORT = "import os\nos._exit(0)\n"
EXITING_PROCESS = "import os\ndef build(settings):\n    os._exit(0)\n" + BUILD_DECLARATION
GENERATOR_EXIT = "raise GeneratorExit\n"
BASE_EXCEPTION = "class Mine(BaseException):\n    pass\nraise Mine('no')\n"


@pytest.fixture
def folder(tmp_path):
    with forgotten(tmp_path):
        yield tmp_path


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (EXITING_BUILD, "theirs.py:4: SystemExit"),
        (UNPRINTABLE_ERROR, "theirs.py:7: Odd: (it cannot say"),
        (FAILING_GETATTR, "theirs.py:4: ZeroDivisionError"),
        (EXITING_IMPORT, "theirs.py:4: SystemExit: os._exit(0)"),
        (EXITING_PROCESS, "exit code 0"),
        (GENERATOR_EXIT, "theirs.py:3: GeneratorExit"),
        (BASE_EXCEPTION, "theirs.py:5: Mine: no"),
    ],
    ids=["ends", "unprintable", "getattr", "leaves", "leaves later", "closes", "base"],
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
    assert "fine.yaml: ok" in result.out
    plan_result = haltsweep("plan", "others.yaml")
    assert plan_result.code == 2
    assert expected in plan_result.err


def test_output_of_custom_code_goes_to_standard_error(folder, haltsweep):
    (folder / "theirs.py").write_text("print('imported')\n" + TRAINING_CODE)
    (folder / "others.yaml").write_text(SPEC)
    result = haltsweep("plan", "others.yaml", "--json")
    assert result.code == 0
    assert json.loads(result.out)["name"] == "others"
    assert "imported" in result.err


@pytest.mark.parametrize("is_package", [False, True], ids=["module", "package"])
def test_faults_of_installed_code_name_its_file(folder, haltsweep, monkeypatch, is_package):
    site_packages = folder / "lib" / "site-packages"
    if is_package:
        (site_packages / "theirs").mkdir(parents=True)
        (site_packages / "theirs" / "inner.py").write_text(EXITING_BUILD)
        (site_packages / "theirs" / "__init__.py").write_text(
            TRAINING_CODE + "from theirs.inner import build, haltsweep\n"
        )
    else:
        site_packages.mkdir(parents=True)
        (site_packages / "theirs.py").write_text(TRAINING_CODE + EXITING_BUILD)
    monkeypatch.syspath_prepend(site_packages)
    (folder / "others.yaml").write_text(SPEC)
    result = haltsweep("plan", "others.yaml")
    assert result.code == 2
    location = "theirs/inner.py:2" if is_package else "theirs.py:4"
    assert f"raised lib/site-packages/{location}: SystemExit: 0" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("exception", ["GeneratorExit", "SystemExit(0)", "Mine"])
def test_trial_that_raises_a_base_exception_is_crashed(folder, haltsweep, exception):
    code = f"class Mine(BaseException):\n    pass\n\ndef train(settings, trial):\n    raise {exception}\n"
    (folder / "theirs.py").write_text(code)
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
arms:
  bad: {why: it raises, set: {kind: bad}}
search:
  also: {lr: {float: [0.01, 0.5]}}
  sampler: random
  trials_per_arm: 1
  objectives: [{metric: valid/accuracy, goal: max}]
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
    assert re.search(r"failed: bad search 0 \(\w+\): crashed: ValueError: no such kind\n", result.out)
    assert re.search(r"failed: bad confirm 1 \(\w+\): never began: a confirm trial needs ", result.out)
    assert [len(re.findall(rf"│ {state} +│", result.out)) for state in ("crashed", "never began")] == [1, 2]


FAILING_MODEL = """
from torch import nn
from trainables.settings import ModelSettings

class Config(ModelSettings):
    layers: int = 1

class Encoder(nn.Module):
    def __init__(self, config):
        raise ValueError("no such thing")
"""


def test_failing_model_is_reported_once_with_its_file(folder, haltsweep):
    """The search and the posthoc settings build the model too."""
    (folder / "kit_of_models").mkdir()
    (folder / "kit_of_models" / "broken.py").write_text(FAILING_MODEL)
    search_sections = """
search: {also: {train.lr: {float: [0.1, 0.2]}}, trials_per_arm: 2,
         objectives: [{metric: valid/accuracy, goal: max}]}
posthoc: {model.layers: [2]}
"""
    spec = TINY.partition("search:")[0].replace(
        "universal, width: 16, heads: 2, max_layers: 2", "kit_of_models.broken"
    )
    spec = spec.replace("model.gate: false", "model.layers: 2").replace(", ponder_weight: 0.01", "")
    (folder / "others.yaml").write_text(
        spec + search_sections + "confirm: {seeds: [1, 2], splits: [near-iid]}\n"
    )
    result = haltsweep("check", "others.yaml")
    assert result.code == 2
    assert "Traceback" not in result.err
    assert result.err.count("kit_of_models/broken.py:10: ValueError: no such thing") == 1, result.err
