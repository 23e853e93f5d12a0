"""The plan of a spec that names its own trainable: what it can prove, and what it refuses."""

import sys

import pytest

from tests.support.training_code.own_code import FORMS, forgotten


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with nothing in it."""
    monkeypatch.chdir(tmp_path)
    with forgotten(tmp_path):
        yield tmp_path


def write(folder, form, *changes):
    name, code, spec = FORMS[form]
    for old, new in changes:
        assert old in code or old in spec, old
        code, spec = code.replace(old, new), spec.replace(old, new)
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
def test_every_form_of_custom_code_is_planned(folder, haltsweep, form, expected):
    write(folder, form)
    found = haltsweep("plan", "own.yaml")
    assert found.code == 0, found
    words = " ".join(found.out.split())
    for each in expected:
        assert each in words
    assert haltsweep("plan", "own.yaml").out == found.out
    assert haltsweep("check", "own.yaml").code == 0


def test_without_an_example_only_weights_are_compared(folder, haltsweep):
    write(folder, "torch", ('"example": example, ', ""))
    words = " ".join(haltsweep("plan", "own.yaml").out.split())
    assert "not checked: whether models of equal weights compute differently" in words
    assert "differs in" not in words


NO_FIELD = ("set: {gate: false}", "set: {gat: false}")


@pytest.mark.parametrize(
    ("form", "changes", "expected"),
    [
        (
            "torch",
            [NO_FIELD],
            "own.yaml:4: arms.minus-gate.set.gat: digits:train has no field gat. Did you mean",
        ),
        ("workload", [NO_FIELD], "own.yaml:4: arms.minus-gate.set.gat: no field gat. Did you mean 'gate'?"),
        ("workload", [("drift: 0.5", "drift: 5.0")], "baseline.drift: must be less than or equal to 1"),
        ("workload", [("drift: 0.5", "drft: 0.5")], "baseline.drft: no field drft. Did you mean 'drift'?"),
        (
            "workload",
            [("drift: 0.5", "drift: 0.5, stepps: 3"), ('ConfigDict(extra="forbid")', "ConfigDict()")],
            "baseline.stepps: walk:Walk has no field stepps. Did you mean 'steps'?",
        ),
        ("workload", [("[0.0, 1.0]", "[0.0, 2.0]")], "less than or equal to 1"),
        (
            "torch",
            [("set: {gate: false}", "set: {gate: true}")],
            "must differ from the baseline, which has true",
        ),
        (
            "torch",
            [("set: {gate: false}", "set: {gate: no}")],
            "minus-gate.set.gate: must be true or false in all arms, got true and the text 'no', which",
        ),
        (
            "torch",
            [("gate: true,", 'gate: "True",')],
            "minus-gate.set.gate: must be true or false in all arms, got false and the text 'True', which",
        ),
        (
            "torch",
            [("set: {gate: false}", 'set: {width: "32"}')],
            "minus-gate.set.width: must be a number in all arms, got 16 and the text '32'",
        ),
        (
            "torch",
            [("posthoc: {scale: [0.5]", 'posthoc: {scale: ["0.5"]')],
            "posthoc.scale[0]: must be a number in all arms, got 1.0 and the text '0.5'",
        ),
        (
            "torch",
            [("posthoc:", "grid: {width: [16, '8']}\nposthoc:")],
            "must be a number in all arms, got 16 and the text '8'",
        ),
        (
            "torch",
            [
                ("also: {lr", "also: {gate: {choice: [no, yes]}, lr"),
                ("set: {gate: false}}", "set: {gate: false}, drop: [gate]}"),
            ],
            "search: gate must be true or false in all arms, got true and the text 'no', which Python takes",
        ),
        (
            "torch",
            [("also: {lr", 'also: {width: {fixed: "32"}, lr')],
            "search: width must be a number in all arms, got 16 and the text '32'",
        ),
        ("torch", [("also: {lr", "also: {lrr")], "baseline has no field lrr. Did you mean 'lr'?"),
        (
            "torch",
            [("goal: max", "goal: min")],
            "must be max, got min: the best valid/accuracy is not the smallest one",
        ),
        ("torch", [("scale: [0.5]", "scale: [1.0]")], "posthoc.scale[0]: must differ from what is trained"),
        ("torch", [("posthoc: {scale", "posthoc: {scal")], "the baseline has no field scal"),
        (
            "sklearn",
            [("resources", "posthoc: {trees: [1]}\nresources")],
            "needs evaluate(settings, folder), which returns",
        ),
        (
            "torch",
            [("posthoc:", "budget: {flops: 1.0e+12}\nposthoc:")],
            "budget.flops: needs train/flops, and digits:train declares no flops: report those so far under",
        ),
        (
            "torch",
            [("trainable: digits:train", "trainable: digits")],
            "must be package.module:name, a class or",
        ),
        ("torch", [("digits:train", "digits:trian")], "trainable: digits has no trian. Did you mean"),
        (
            "torch",
            [("return nn.Seq", "raise OSError(3)\n    return nn.Seq")],
            "cannot be built: build(settings)",
        ),
        (
            "torch",
            [("torch.ones(4, 64)", "torch.ones(4, 63)")],
            "the model cannot run its example: RuntimeErr",
        ),
        (
            "torch",
            [("def evaluate(settings, folder)", "def evaluate(model, loader, device)")],
            "trainable: evaluate of digits:train cannot be called as evaluate(settings, folder): ",
        ),
        (
            "torch",
            [("def evaluate(", "async def evaluate(")],
            "trainable: evaluate of digits:train must measure when it is called, but it only returns a cor",
        ),
        ("torch", [("import time", "import no_such_library")], "No module named 'no_such_library'"),
        (
            "torch",
            [("return nn.Seq", "raise SystemExit(3)\n    return nn.Seq")],
            "baseline: baseline cannot be built: build(settings) raised digits.py:14: SystemExit: 3",
        ),
        (
            "workload",
            [("    gate: bool = True", "    gate: bool = True\n    clip: float = float('inf')")],
            "baseline.clip: must be finite, for settings are kept as JSON, and config of walk:Walk",
        ),
        (
            "workload",
            [("    gate: bool = True", "    gate: bool = True\n    place: str = chr(0)")],
            "baseline.place: must be text that can be stored, and config of walk:Walk makes it the text",
        ),
        (
            "workload",
            [("    gate: bool = True", "    gate: bool = True\n    def model_dump(self, **_): return [1]")],
            "baseline: config of walk:Walk must give a mapping of fields, got a list",
        ),
        (
            "workload",
            [
                (
                    "    gate: bool = True",
                    "    gate: bool = True\n    def model_dump(self, **_): raise SystemExit",
                )
            ],
            "baseline: walk:Walk refuses these settings: walk.py:",
        ),
        (
            "workload",
            [("drift: 0.5", "drift: 0.5, a.b: 1, a: {b: 2}")],
            "baseline.a.b: names two fields, the key 'a.b' and one inside of a mapping: rename one of them",
        ),
    ],
)
def test_faults_are_reported_with_file_and_line(folder, haltsweep, form, changes, expected):
    write(folder, form, *changes)
    before = sorted(folder.iterdir())
    for command in ("plan", "check"):
        found = haltsweep(command, "own.yaml")
        assert found.code == 2, found
        assert expected in " ".join(found.err.split()), found.err
        assert "Traceback" not in found.err
    assert sorted(path for path in folder.iterdir() if path.name != "__pycache__") == before


def test_another_trainable_gives_other_trials(folder, haltsweep):
    write(folder, "torch")
    one = haltsweep("plan", "own.yaml", "--json").out
    write(folder, "torch", ("digits:train", "digits:train_again"), ("def train(", "def train_again("))
    sys.modules.pop("digits")
    other = haltsweep("plan", "own.yaml", "--json").out
    assert one != other
    assert '"trainable": "digits:train_again"' in other


@pytest.mark.parametrize("form", ["torch", "sklearn"])
def test_an_override_of_an_unknown_field_is_refused(folder, haltsweep, form):
    """Without a Config nobody else would notice."""
    write(folder, form)
    field, slip = {"torch": ("epochs", "epohcs"), "sklearn": ("trees", "treees")}[form]
    found = haltsweep("plan", "own.yaml", f"baseline.{slip}=3")
    assert found.code == 2
    shown = f"override 'baseline.{slip}=3': baseline.{slip}: the baseline has no field {slip}. Did you mean"
    assert shown in " ".join(found.err.split())
    assert f"{field!r}?" in found.err
    assert haltsweep("plan", "own.yaml", f"baseline.{field}=3").code == 0
    nested = haltsweep("plan", "own.yaml", "baseline.optimiser.lr=3")
    assert "the baseline has no field optimiser" in nested.err


def test_a_profile_adds_no_field_either(folder, haltsweep):
    write(folder, "sklearn", ("resources:", "profiles:\n  short: {baseline.treees: 1}\nresources:"))
    found = haltsweep("check", "own.yaml")
    assert found.code == 2
    assert "the baseline has no field treees. Did you mean 'trees'?" in " ".join(found.err.split())


def test_a_text_may_stand_where_none_is_meant_for_something_else(folder, haltsweep):
    write(
        folder, "sklearn", ("depth: 3", "depth: 3, leaves: 2"), ("set: {gate: false}", "set: {leaves: auto}")
    )
    assert haltsweep("check", "own.yaml").code == 0


def test_texts_that_are_true_in_python_are_warned_of(folder, haltsweep):
    write(folder, "sklearn", ("gate: true", "gate: no"), ("set: {gate: false}", "set: {gate: yes}"))
    shown = "Warning: gate is the text 'no', true for Python: write false if that is meant."
    assert shown in " ".join(haltsweep("plan", "own.yaml").out.split())
    checked = haltsweep("check", "own.yaml")
    assert (checked.code, checked.out) == (0, "own.yaml: ok\n")
    assert shown in " ".join(checked.err.split())


def test_a_launch_prints_warnings_first(folder, haltsweep):
    write(folder, "torch", ("metric: valid/accuracy", "metric: valid/acuracy"))
    found = haltsweep("launch", "own.yaml", "--driver", "inline", "--tracking", "none")
    assert found.code == 1, "no trial reports it"
    look, first, why = map(
        found.err.index, ("Warning: valid/acuracy is searched", "first failure", " failed; why: ")
    )
    assert look < first < why
    assert found.err.count("first failure: baseline search 0 (") == found.err.count("failure") == 1, (
        "of several"
    )
    assert "the sweep continues, `haltsweep status" in found.err


def test_the_plan_says_what_is_searched_for_and_not_declared(folder, haltsweep):
    write(folder, "torch", ("metric: valid/accuracy", "metric: valid/acuracy"))
    words = " ".join(haltsweep("plan", "own.yaml").out.split())
    assert "Warning: valid/acuracy is searched for and not declared in the metrics of digits:train" in words
    assert "A trial has 1 CPU core." in words
    write(folder, "torch")
    asked = " ".join(haltsweep("plan", "own.yaml", "answer.metric=test/acuracy").out.split())
    assert "Warning: test/acuracy is a primary outcome and not declared in the metrics of" in asked
    assert "Look twice" not in haltsweep("plan", "own.yaml").out


def test_published_values_are_shown_for_custom_code(folder, haltsweep):
    row = "{{arm: baseline, metric: {}, values: {{valid: {}}}, source: a table}}"
    rows = [row.format("acuracy", 0.5), row.format("accuracy", 0.9), row.format("accuracy", 0.8)]
    write(folder, "torch")
    words = " ".join(haltsweep("plan", "own.yaml", f"published=[{rows[0]}, {rows[1]}]").out.split())
    assert "Warning: acuracy is published and not declared in the metrics of digits:train" in words
    found = haltsweep("plan", "own.yaml", f"published=[{', '.join(rows)}]")
    assert found.code == 2
    shown = "accuracy of baseline must be given once, also in published[1]"
    assert shown in " ".join(found.err.split())


SIZED = """
from pydantic import BaseModel, model_validator

class Config(BaseModel):
    width: int
    lr: float
    hidden: int = 0

    @model_validator(mode="after")
    def reckoned(self):
        self.lr = min(self.lr, 0.5)
        return self

def train(settings, trial):
    trial.report(1, {"valid/accuracy": 0.5})

haltsweep = {"config": Config}
"""
SIZED_SPEC = """\
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
    ("searched", "more", "expected"),
    [
        ("width: {float: [8, 32]}", "", "must be a valid integer, got a number with a fractional part"),
        (
            "width: {choice: ['8', 9]}",
            "",
            "must be kept as it is drawn, and config of sized:train makes it",
        ),
        ("width: {choice: [true, 9]}", "", "makes it 1, got true. Possible are 9"),
        ("width: {int: [8, 9]}, lr: {float: [0.1, 0.9]}", "", "makes it 0.5, got 0.9"),
        (
            "width: {int: [8, 9]}",
            "self.hidden = 4 * self.width; ",
            "must change nothing else with a draw, and makes hidden 36, where the trial would have 32",
        ),
    ],
)
def test_values_that_a_config_changes_cannot_be_searched(folder, haltsweep, searched, more, expected):
    """A trial of a search has what was drawn, an arm what the Config made of it."""
    (folder / "sized.py").write_text(SIZED.replace("self.lr = min", f"{more}self.lr = min"))
    (folder / "own.yaml").write_text(SIZED_SPEC.replace("RANGE", searched))
    found = haltsweep("check", "own.yaml")
    assert found.code == 2, found
    assert "own.yaml:7: search.also." in found.err
    assert expected in " ".join(found.err.split())


def test_values_that_a_config_keeps_can_be_searched(folder, haltsweep):
    (folder / "sized.py").write_text(SIZED)
    searched = "width: {int: [8, 32]}, lr: {choice: [0.25, 0.5]}"
    (folder / "own.yaml").write_text(SIZED_SPEC.replace("RANGE", searched))
    assert haltsweep("check", "own.yaml").code == 0


CLAMPED = "must be kept as it is written, and config of sized:train makes lr 0.5, got {}: write 0.5 if that"


@pytest.mark.parametrize(
    ("change", "line", "given"),
    [
        (("set: {width: 16}", "set: {lr: 0.9}"), 5, "0.9"),
        (("search:", "grid: {lr: [0.2, 0.7]}\nsearch:"), 6, "0.7"),
    ],
)
def test_a_value_that_a_config_clamps_is_refused(folder, haltsweep, change, line, given):
    (folder / "sized.py").write_text(SIZED)
    spec = SIZED_SPEC.replace("RANGE", "width: {int: [8, 32]}")
    (folder / "own.yaml").write_text(spec.replace(*change))
    found = haltsweep("check", "own.yaml")
    assert found.code == 2, found
    assert f"own.yaml:{line}: " in found.err
    assert CLAMPED.format(given) in " ".join(found.err.split())


BUILT_ANEW = """
from pathlib import Path

import torch

made = Path(__file__).with_name("made.txt")

def build(settings):
    with made.open("a") as file:
        file.write("x")
    return torch.nn.Linear(4, len(made.read_text()))

def train(settings, trial):
    trial.report(1, {"valid/accuracy": 0.5})
"""


@pytest.mark.parametrize("example", ["None", "lambda settings: torch.ones(1, 4)"])
def test_models_that_differ_between_builds_fail_the_ablation_check(folder, haltsweep, example):
    """What no arm did would be told as what its change does."""
    (folder / "sized.py").write_text(BUILT_ANEW + f"\nhaltsweep = {{'build': build, 'example': {example}}}\n")
    (folder / "own.yaml").write_text(SIZED_SPEC.replace("RANGE", "width: {int: [8, 32]}"))
    found = haltsweep("plan", "own.yaml")
    assert found.code == 0, found
    words = " ".join(found.out.split())
    assert "warning: build(settings) makes another model each time" in words
    assert "differs in weights" not in words
    assert "+ weight" not in words
