"""Plans of specs with a custom trainable: ablation checks and refusals."""

import sys

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
    [
        (
            "torch",
            ["differs in outputs, gradient", "+ 1: Identity", "built by the build(settings) of digits:tr"],
        ),
        ("sklearn", ["Not checked: whether the arms of forest:fit differ in more than their settings"]),
        ("workload", ["Not checked: whether the arms of walk:Walk", "steps 6", "searches drift: 0 to 1"]),
    ],
)
def test_every_form_of_custom_code_can_be_planned(folder, haltsweep, form, expected):
    write_spec(folder, form)
    result = haltsweep("plan", "own.yaml")
    assert result.code == 0, result
    output = " ".join(result.out.split())
    for text in expected:
        assert text in output
    assert haltsweep("plan", "own.yaml").out == result.out
    assert haltsweep("check", "own.yaml").code == 0


def test_plan_without_an_example_compares_only_weights(folder, haltsweep):
    write_spec(folder, "torch", ('"example": example, ', ""))
    output = " ".join(haltsweep("plan", "own.yaml").out.split())
    assert "Not checked: whether models of equal weights compute differently" in output
    assert "differs in" not in output


NO_FIELD = ("set: {gate: false}", "set: {gat: false}")


@pytest.mark.parametrize(
    ("form", "changes", "place"),
    [
        ("torch", [NO_FIELD], "4: arms.minus-gate.set.gat"),
        ("workload", [NO_FIELD], "4: arms.minus-gate.set.gat"),
        ("workload", [("drift: 0.5", "drift: 5.0")], "13: baseline.drift"),
        ("workload", [("drift: 0.5", "drft: 0.5")], "13: baseline.drft"),
        (
            "workload",
            [("drift: 0.5", "drift: 0.5, stepps: 3"), ('ConfigDict(extra="forbid")', "ConfigDict()")],
            "13: baseline.stepps",
        ),
        ("workload", [("[0.0, 1.0]", "[0.0, 2.0]")], "8: search.also.drift"),
        ("torch", [("set: {gate: false}", "set: {gate: true}")], "4: arms.minus-gate.set.gate"),
        ("torch", [("set: {gate: false}", "set: {gate: no}")], "4: arms.minus-gate.set.gate"),
        ("torch", [("gate: true,", 'gate: "True",')], "4: arms.minus-gate.set.gate"),
        ("torch", [("set: {gate: false}", 'set: {width: "32"}')], "4: arms.minus-gate.set.width"),
        ("torch", [("posthoc: {scale: [0.5]", 'posthoc: {scale: ["0.5"]')], "14: posthoc.scale[0]"),
        ("torch", [("posthoc:", "grid: {width: [16, '8']}\nposthoc:")], "14: grid.width"),
        (
            "torch",
            [
                ("also: {lr", "also: {gate: {choice: [no, yes]}, lr"),
                ("set: {gate: false}}", "set: {gate: false}, drop: [gate]}"),
            ],
            "7: search",
        ),
        ("torch", [("also: {lr", 'also: {width: {fixed: "32"}, lr')], "7: search"),
        ("torch", [("also: {lr", "also: {lrr")], "8: search.also.lrr"),
        ("torch", [("goal: max", "goal: min")], "11: search.objectives[0].goal"),
        ("torch", [("scale: [0.5]", "scale: [1.0]")], "14: posthoc.scale[0]"),
        ("torch", [("posthoc: {scale", "posthoc: {scal")], "14: posthoc.scal"),
        ("sklearn", [("resources", "posthoc: {trees: [1]}\nresources")], "6: posthoc"),
        ("torch", [("posthoc:", "budget: {flops: 1.0e+12}\nposthoc:")], "14: budget.flops"),
        ("torch", [("trainable: digits:train", "trainable: digits")], "12: trainable"),
        ("torch", [("digits:train", "digits:trian")], "12: trainable"),
        ("torch", [("return nn.Seq", "raise OSError(3)\n    return nn.Seq")], "13: baseline"),
        ("torch", [("torch.ones(4, 64)", "torch.ones(4, 63)")], "13: baseline"),
        (
            "torch",
            [("def evaluate(settings, folder)", "def evaluate(model, loader, device)")],
            "12: trainable",
        ),
        ("torch", [("def evaluate(", "async def evaluate(")], "12: trainable"),
        ("torch", [("import time", "import no_such_library")], "12: trainable"),
        ("torch", [("return nn.Seq", "raise SystemExit(3)\n    return nn.Seq")], "13: baseline"),
        (
            "workload",
            [("    gate: bool = True", "    gate: bool = True\n    clip: float = float('inf')")],
            "13: baseline.clip",
        ),
        (
            "workload",
            [("    gate: bool = True", "    gate: bool = True\n    place: str = chr(0)")],
            "13: baseline.place",
        ),
        (
            "workload",
            [("    gate: bool = True", "    gate: bool = True\n    def model_dump(self, **_): return [1]")],
            "13: baseline",
        ),
        (
            "workload",
            [
                (
                    "    gate: bool = True",
                    "    gate: bool = True\n    def model_dump(self, **_): raise SystemExit",
                )
            ],
            "13: baseline",
        ),
        ("workload", [("drift: 0.5", "drift: 0.5, a.b: 1, a: {b: 2}")], "13: baseline.a.b"),
    ],
)
def test_faults_are_reported_with_file_and_line(folder, haltsweep, form, changes, place):
    write_spec(folder, form, *changes)
    files_before = sorted(folder.iterdir())
    for command in ("plan", "check"):
        result = haltsweep(command, "own.yaml")
        assert result.code == 2, result
        assert f"own.yaml:{place}: " in result.err
        assert "Traceback" not in result.err
    assert sorted(path for path in folder.iterdir() if path.name != "__pycache__") == files_before


def test_another_trainable_changes_the_trials(folder, haltsweep):
    write_spec(folder, "torch")
    first_plan = haltsweep("plan", "own.yaml", "--json").out
    write_spec(folder, "torch", ("digits:train", "digits:train_twice"), ("def train(", "def train_twice("))
    sys.modules.pop("digits")
    second_plan = haltsweep("plan", "own.yaml", "--json").out
    assert first_plan != second_plan
    assert '"trainable": "digits:train_twice"' in second_plan


@pytest.mark.parametrize("form", ["torch", "sklearn"])
def test_override_of_an_unknown_field_is_refused(folder, haltsweep, form):
    """Only the plan can notice the fault, because the code has no Config."""
    write_spec(folder, form)
    field, typo = {"torch": ("epochs", "epohcs"), "sklearn": ("trees", "treees")}[form]
    result = haltsweep("plan", "own.yaml", f"baseline.{typo}=3")
    assert result.code == 2
    assert f"override 'baseline.{typo}=3': baseline.{typo}: " in " ".join(result.err.split())
    assert f"{field!r}?" in result.err
    assert haltsweep("plan", "own.yaml", f"baseline.{field}=3").code == 0
    nested_result = haltsweep("plan", "own.yaml", "baseline.optimiser.lr=3")
    assert " optimiser" in nested_result.err


def test_profile_cannot_add_a_field(folder, haltsweep):
    write_spec(folder, "sklearn", ("resources:", "profiles:\n  short: {baseline.treees: 1}\nresources:"))
    result = haltsweep("check", "own.yaml")
    assert result.code == 2
    assert "'trees'" in " ".join(result.err.split())


def test_arm_may_replace_a_number_by_text(folder, haltsweep):
    write_spec(
        folder, "sklearn", ("depth: 3", "depth: 3, leaves: 2"), ("set: {gate: false}", "set: {leaves: auto}")
    )
    assert haltsweep("check", "own.yaml").code == 0


def test_text_that_python_takes_as_true_gets_a_warning(folder, haltsweep):
    write_spec(folder, "sklearn", ("gate: true", "gate: no"), ("set: {gate: false}", "set: {gate: yes}"))
    warning = "Warning: gate is the text 'no'"
    assert warning in " ".join(haltsweep("plan", "own.yaml").out.split())
    check_result = haltsweep("check", "own.yaml")
    assert (check_result.code, check_result.out) == (0, "own.yaml: ok\n")
    assert warning in " ".join(check_result.err.split())


def test_launch_prints_warnings_before_failures(folder, haltsweep):
    write_spec(folder, "torch", ("metric: valid/accuracy", "metric: valid/acuracy"))
    result = haltsweep("launch", "own.yaml", "--driver", "inline", "--tracking", "none")
    assert result.code == 1, "no trial reports it"
    warning_index, failure_index, reason_index = map(
        result.err.index, ("Warning: valid/acuracy is searched", "first failure", " failed; why: ")
    )
    assert warning_index < failure_index < reason_index
    assert result.err.count("first failure: baseline search 0 (") == result.err.count("failure") == 1, (
        "several trials failed"
    )
    assert "`haltsweep status" in result.err


def test_plan_warns_about_undeclared_metrics(folder, haltsweep):
    write_spec(folder, "torch", ("metric: valid/accuracy", "metric: valid/acuracy"))
    output = " ".join(haltsweep("plan", "own.yaml").out.split())
    assert "Warning: valid/acuracy " in output
    assert "A trial has 1 CPU core." in output
    write_spec(folder, "torch")
    answer_output = " ".join(haltsweep("plan", "own.yaml", "answer.metric=test/acuracy").out.split())
    assert "Warning: test/acuracy " in answer_output
    assert "Look twice" not in haltsweep("plan", "own.yaml").out


def test_published_values_are_shown_for_custom_code(folder, haltsweep):
    row_format = "{{arm: baseline, metric: {}, values: {{valid: {}}}, source: a table}}"
    rows = [
        row_format.format("acuracy", 0.5),
        row_format.format("accuracy", 0.9),
        row_format.format("accuracy", 0.8),
    ]
    write_spec(folder, "torch")
    output = " ".join(haltsweep("plan", "own.yaml", f"published=[{rows[0]}, {rows[1]}]").out.split())
    assert "Warning: acuracy " in output
    result = haltsweep("plan", "own.yaml", f"published=[{', '.join(rows)}]")
    assert result.code == 2
    assert "published[1]" in " ".join(result.err.split())


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
    ("search_space", "statement", "field", "quoted"),
    [
        ("width: {float: [8, 32]}", "", "width", ""),
        ("width: {choice: ['8', 9]}", "", "width", "sized:train"),
        ("width: {choice: [true, 9]}", "", "width", "1, got true. Possible are 9"),
        ("width: {int: [8, 9]}, lr: {float: [0.1, 0.9]}", "", "lr", "0.5, got 0.9"),
        ("width: {int: [8, 9]}", "self.hidden = 4 * self.width; ", "width", "hidden 36"),
    ],
)
def test_values_that_a_config_changes_cannot_be_searched(
    folder, haltsweep, search_space, statement, field, quoted
):
    """A search trial has the sampled value; an arm has the value that the Config computes."""
    (folder / "sized.py").write_text(CLAMPING_CODE.replace("self.lr = min", f"{statement}self.lr = min"))
    (folder / "own.yaml").write_text(CLAMPING_SPEC.replace("RANGE", search_space))
    result = haltsweep("check", "own.yaml")
    assert result.code == 2, result
    assert f"own.yaml:7: search.also.{field}" in result.err
    assert quoted in " ".join(result.err.split())


def test_values_that_a_config_preserves_can_be_searched(folder, haltsweep):
    (folder / "sized.py").write_text(CLAMPING_CODE)
    search_space = "width: {int: [8, 32]}, lr: {choice: [0.25, 0.5]}"
    (folder / "own.yaml").write_text(CLAMPING_SPEC.replace("RANGE", search_space))
    assert haltsweep("check", "own.yaml").code == 0


@pytest.mark.parametrize(
    ("change", "line", "value"),
    [
        (("set: {width: 16}", "set: {lr: 0.9}"), 5, "0.9"),
        (("search:", "grid: {lr: [0.2, 0.7]}\nsearch:"), 6, "0.7"),
    ],
)
def test_value_that_a_config_clamps_is_refused(folder, haltsweep, change, line, value):
    (folder / "sized.py").write_text(CLAMPING_CODE)
    spec = CLAMPING_SPEC.replace("RANGE", "width: {int: [8, 32]}")
    (folder / "own.yaml").write_text(spec.replace(*change))
    result = haltsweep("check", "own.yaml")
    assert result.code == 2, result
    assert f"own.yaml:{line}: " in result.err
    assert f"lr 0.5, got {value}" in " ".join(result.err.split())


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
"""


@pytest.mark.parametrize("example", ["None", "lambda settings: torch.ones(1, 4)"])
def test_models_that_differ_between_builds_fail_the_ablation_check(folder, haltsweep, example):
    """The ablation check would attribute a random difference between builds to an arm."""
    (folder / "sized.py").write_text(
        VARYING_BUILD_CODE + f"\nhaltsweep = {{'build': build, 'example': {example}}}\n"
    )
    (folder / "own.yaml").write_text(CLAMPING_SPEC.replace("RANGE", "width: {int: [8, 32]}"))
    result = haltsweep("plan", "own.yaml")
    assert result.code == 0, result
    output = " ".join(result.out.split())
    assert "warning: build(settings) makes another model each time" in output
    assert "differs in weights" not in output
    assert "+ weight" not in output
