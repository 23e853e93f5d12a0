"""Plans of specs with a custom trainable: ablation checks and refusals."""

import re

import pytest

from tests.support.training_code.own_code import FORMS, forgotten


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return an empty working folder."""
    monkeypatch.chdir(tmp_path)
    with forgotten(tmp_path):
        yield tmp_path


def write_spec(folder, form, *changes):
    name, code, spec = FORMS[form]
    for text_before, text_after in changes:
        assert text_before in code or text_before in spec, text_before
        code, spec = code.replace(text_before, text_after), spec.replace(text_before, text_after)
    (folder / f"{name}.py").write_text(code)
    (folder / "own.yaml").write_text(spec)


@pytest.mark.parametrize(
    ("form", "expected"),
    [("torch", "outputs, gradient"), ("sklearn", "forest:fit"), ("workload", "walk:Walk")],
)
def test_every_form_of_custom_code_can_be_planned(folder, haltsweep, form, expected):
    write_spec(folder, form)
    result = haltsweep("plan", "own.yaml")
    assert result.code == 0, result
    assert expected in " ".join(result.out.split())


CODE_FIELD = "    gate: bool = True"


@pytest.mark.parametrize(
    ("form", "changes", "place"),
    [
        ("torch", [("set: {gate: false}", "set: {gat: false}")], "4: arms.minus-gate.set.gat"),
        ("workload", [("set: {gate: false}", "set: {gat: false}")], "4: arms.minus-gate.set.gat"),
        ("workload", [("drift: 0.5", "drift: 5.0")], "13: baseline.drift"),
        ("workload", [("[0.0, 1.0]", "[0.0, 2.0]")], "8: search.also.drift"),
        ("torch", [("set: {gate: false}", "set: {gate: true}")], "4: arms.minus-gate.set.gate"),
        ("torch", [("set: {gate: false}", 'set: {width: "32"}')], "4: arms.minus-gate.set.width"),
        ("torch", [("also: {lr", "also: {lrr")], "8: search.also.lrr"),
        ("torch", [("also: {lr", 'also: {width: {fixed: "32"}, lr')], "7: search"),
        ("torch", [("goal: max", "goal: min")], "11: search.objectives[0].goal"),
        ("torch", [("scale: [0.5]", "scale: [1.0]")], "14: posthoc.scale[0]"),
        ("torch", [("posthoc: {scale", "posthoc: {scal")], "14: posthoc.scal"),
        ("sklearn", [("resources", "posthoc: {trees: [1]}\nresources")], "6: posthoc"),
        ("torch", [("posthoc:", "budget: {flops: 1.0e+12}\nposthoc:")], "14: budget.flops"),
        ("torch", [("digits:train", "digits:trian")], "12: trainable"),
        (
            "torch",
            [("def evaluate(settings, folder)", "def evaluate(model, loader, device)")],
            "12: trainable",
        ),
        ("torch", [("import time", "import no_such_library")], "12: trainable"),
        ("torch", [("torch.ones(4, 64)", "torch.ones(4, 63)")], "13: baseline"),
        ("workload", [(CODE_FIELD, f"{CODE_FIELD}\n    clip: float = float('inf')")], "13: baseline.clip"),
    ],
)
def test_faults_are_reported_with_file_and_line(folder, haltsweep, form, changes, place):
    write_spec(folder, form, *changes)
    result = haltsweep("check", "own.yaml")
    assert result.code == 2, result
    assert f"own.yaml:{place}: " in result.err
    assert "Traceback" not in result.err


def test_override_of_an_unknown_field_is_refused(folder, haltsweep):
    """Only the plan can notice the fault, because the code has no Config."""
    write_spec(folder, "sklearn")
    result = haltsweep("plan", "own.yaml", "baseline.treees=3")
    assert result.code == 2
    assert "override 'baseline.treees=3': baseline.treees: " in " ".join(result.err.split())
    assert haltsweep("plan", "own.yaml", "baseline.trees=3").code == 0
    assert "contexts.treees: " in haltsweep("plan", "own.yaml", "contexts={treees: [3, 4]}").err


def test_text_that_python_takes_as_true_gets_a_warning(folder, haltsweep):
    write_spec(folder, "sklearn", ("gate: true", "gate: no"), ("set: {gate: false}", "set: {gate: yes}"))
    result = haltsweep("check", "own.yaml")
    assert (result.code, result.out) == (0, "own.yaml: ok\n")
    assert re.search("^Warning: gate .*'no'", " ".join(result.err.split()))


def test_script_gets_warnings_for_no_report_and_for_null_of_a_flag_with_a_default(folder, haltsweep):
    (folder / "fit.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--clip', type=float, default=1.5)\nparser.add_argument('--wd', default=None)\n"
    )
    (folder / "own.yaml").write_text(
        "name: own\nquestion: Does clipping help?\ntrainable: fit.py\nbaseline: {clip: 0.5, wd: 0.1}\n"
        "arms: {bare: {why: neither, set: {clip: null, wd: null}}}\nconfirm: {seeds: 3}\n"
        "answer: {metric: valid/loss}\n"
    )
    shown_plan = " ".join(haltsweep("plan", "own.yaml").out.split())
    assert re.search(r"Warning: bare: clip .*default 1\.5", shown_plan)
    assert "bare: wd" not in shown_plan
    assert re.search(r"fit\.py .*metrics\.jsonl", shown_plan)
    with (folder / "fit.py").open("a") as script:
        script.write("open('metrics.jsonl', 'w')\n")
    assert "metrics.jsonl" not in haltsweep("plan", "own.yaml").out


def test_plan_warns_about_undeclared_metrics(folder, haltsweep):
    write_spec(folder, "torch", ("metric: valid/accuracy", "metric: valid/acuracy"))
    assert "Warning: valid/acuracy " in " ".join(haltsweep("plan", "own.yaml").out.split())


CLAMPING_CODE = """
from pydantic import BaseModel, model_validator

class Config(BaseModel):
    width: int
    lr: float
    hidden: int = 0

    @model_validator(mode="after")
    def clamp_rate(self):
        self.lr = min(self.lr, 0.5)
        return self

def train(settings, trial):
    trial.report(1, {"valid/accuracy": 0.5})

haltsweep = {"config": Config}
"""
CLAMPING_SPEC = """\
name: sized
question: Does width matter?
trainable: sized:train
baseline: {width: 8, lr: 0.1}
arms: {wide: {why: twice as wide, set: {width: 16}, drop: [width]}}
search:
  also: {RANGE}
  trials_per_arm: 2
  objectives: [{metric: valid/accuracy, goal: max}]
"""


@pytest.mark.parametrize(
    ("search_space", "statement", "field"),
    [
        ("width: {choice: ['8', 9]}", "", "width"),
        ("width: {int: [8, 9]}, lr: {float: [0.1, 0.9]}", "", "lr"),
        ("width: {int: [8, 9]}", "self.hidden = 4 * self.width; ", "width"),
    ],
)
def test_values_that_a_config_changes_cannot_be_searched(folder, haltsweep, search_space, statement, field):
    """A search trial has the sampled value; an arm has the value that the Config computes."""
    (folder / "sized.py").write_text(CLAMPING_CODE.replace("self.lr = min", f"{statement}self.lr = min"))
    (folder / "own.yaml").write_text(CLAMPING_SPEC.replace("RANGE", search_space))
    result = haltsweep("check", "own.yaml")
    assert result.code == 2, result
    assert f"own.yaml:7: search.also.{field}" in result.err


def test_values_that_a_config_preserves_can_be_searched(folder, haltsweep):
    (folder / "sized.py").write_text(CLAMPING_CODE)
    search_space = "width: {int: [8, 32]}, lr: {choice: [0.25, 0.5]}"
    (folder / "own.yaml").write_text(CLAMPING_SPEC.replace("RANGE", search_space))
    assert haltsweep("check", "own.yaml").code == 0


def test_arm_with_a_value_that_a_config_clamps_is_refused(folder, haltsweep):
    (folder / "sized.py").write_text(CLAMPING_CODE)
    spec = CLAMPING_SPEC.replace("RANGE", "width: {int: [8, 32]}")
    (folder / "own.yaml").write_text(spec.replace("set: {width: 16}", "set: {lr: 0.9}"))
    result = haltsweep("check", "own.yaml")
    assert (result.code, "own.yaml:5: " in result.err) == (2, True)


VARYING_BUILD_CODE = """
from pathlib import Path

import torch

builds = Path(__file__).with_name("builds.txt")

def build(settings):
    with builds.open("a") as file:
        file.write("x")
    return torch.nn.Linear(4, len(builds.read_text()))

def train(settings, trial):
    trial.report(1, {"valid/accuracy": 0.5})

haltsweep = {"build": build, "example": lambda settings: torch.ones(1, 4)}
"""


def test_models_that_differ_between_builds_fail_the_ablation_check(folder, haltsweep):
    """The ablation check would attribute a random difference between builds to an arm."""
    (folder / "sized.py").write_text(VARYING_BUILD_CODE)
    (folder / "own.yaml").write_text(CLAMPING_SPEC.replace("RANGE", "width: {int: [8, 32]}"))
    result = haltsweep("plan", "own.yaml")
    assert result.code == 0, result
    output = " ".join(result.out.split())
    assert re.search(r"warning: .*build\(settings\)", output)
    assert "weights" not in output
