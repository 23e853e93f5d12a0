"""A spec can name functions, classes and scripts as trainables, and errors explain unusable ones."""

import math
import re
import sys
from textwrap import dedent

import pytest
from pydantic import ValidationError

from tests.support.training_code.own_code import FORMS, forgotten
from trainables.custom.extensions import add_to_path
from trainables.custom.outside import load
from trainables.metrics import Metric, parse_metrics
from trainables.protocol import Job


@pytest.fixture
def write_module(tmp_path):
    """Write a module into a folder of the import path."""

    def write(name, code):
        (tmp_path / f"{name}.py").write_text(code)

    with forgotten(tmp_path):
        add_to_path(tmp_path)
        yield write


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_trainable_is_loaded(form, write_module):
    name, code, spec = FORMS[form]
    write_module(name, code)
    path = next(line.split()[1] for line in spec.splitlines() if line.startswith("trainable"))
    trainable = load(path)
    assert trainable.path == path
    assert (trainable.config is not None) == (form == "workload")
    assert (trainable.build is not None) == (trainable.evaluate is not None) == (form == "torch")
    assert trainable.workload(Job({"drift": 0.5, "gate": True, "steps": 1, "pause": 0}, seed=0)) is not None


def test_function_can_have_its_own_declaration(write_module):
    code = """
        def first(settings, trial): ...
        def second(settings, trial): ...
        first.haltsweep = {"several_gpus": True}
        haltsweep = {"metrics": {"score": {}}}
    """
    write_module("mine", dedent(code))
    assert load("mine:first").several_gpus
    assert load("mine:first").metrics == ()
    assert [metric.name for metric in load("mine:second").metrics] == ["score"]


def test_dataclass_validates_settings(write_module):
    code = """
        from dataclasses import dataclass, field
        @dataclass
        class Optimiser:
            lr: float = 0.1
        @dataclass
        class Config:
            width: int
            optimiser: Optimiser = field(default_factory=Optimiser)
            def __post_init__(self):
                if self.width % 2: raise ValueError("width must be even")
        def train(settings, trial): ...
        haltsweep = {"config": Config}
    """
    write_module("mine", dedent(code))
    config = load("mine:train").config
    settings = config.model_validate({"width": 4, "optimiser": {"lr": 1}}).model_dump(mode="json")
    assert settings == {"width": 4, "optimiser": {"lr": 1.0}}
    for wrong_settings, location in (({"width": 3}, ()), ({"width": 4, "depth": 1}, ("depth",))):
        with pytest.raises(ValidationError) as error:
            config.model_validate(wrong_settings)
        assert [fault["loc"] for fault in error.value.errors()] == [location]


def test_metrics_can_be_declared_by_mappings_or_objects():
    accuracy = {"better": "max", "unit": "%", "range": [0, 1], "floor": 0.1, "meaning": "right ones"}
    expected = (Metric("accuracy", "max", "%", 0.0, 1.0, 0.1, "right ones"), Metric("loss"))
    assert parse_metrics({"accuracy": accuracy, "loss": {}}) == parse_metrics(expected) == expected
    assert parse_metrics({"calls": {"cost": True}}) == (Metric("calls", is_cost=True),)
    assert parse_metrics({"loss": {"range": [0, None]}})[0].span == (0.0, math.inf)


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"acc": {"range": [0, 1], "floor": 5}}, r"\[0, 1\], got 5 .*acc"),
        ({"acc": {"floor": 10**400}}, "1000"),
        ([Metric("valid/acc")], "'valid/acc'"),
        ([Metric("acc"), Metric("acc", better="max")], "acc"),
        ([Metric("acc", better="most")], "'most' .*acc"),
    ],
)
def test_invalid_metric_declaration_raises_an_error(metrics, expected):
    with pytest.raises(ValueError, match=expected):
        parse_metrics(metrics)


@pytest.mark.parametrize(
    ("code", "path", "expected"),
    [
        ("def trian(s, t): ...", "mine:train", "'trian'"),
        ("train = 3", "mine:train", "int .*mine:train"),
        ("import nowhere_at_all", "mine:train", r"mine.py:1: ModuleNotFoundError: .*nowhere_at_all"),
        ("def train(", "mine:train", "SyntaxError"),
        ("def train(settings): ...", "mine:train", "train"),
        ("async def train(s, t): ...", "mine:train", "coroutine"),
        ("class train:\n def save(self, f): ...", "mine:train", "advance, restore, close"),
        ("def train(s, t): ...\nhaltsweep = {'metric': {}}", "mine:train", "'metric'.*'metrics'"),
        ("", "no/such/script.py", "no/such/script.py"),
        ("", "elsewhere_at_all:train", "elsewhere_at_all"),
        ("x = 1\nprint 'x'", "mine.py", r"mine\.py:2 "),
    ],
)
def test_unusable_trainable_raises_an_error_of_one_line(code, path, expected, write_module):
    write_module("mine", code)
    with pytest.raises(ValueError, match=expected) as error:
        load(path)
    assert "\n" not in str(error.value)


def test_file_hidden_by_another_module_raises_an_error(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("def train(s, t): ...")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ValueError, match=r"json .*train.*json\.py"):
        load("json:train")


@pytest.mark.parametrize(
    ("file", "code", "path"),
    [
        ("orchestrator.py", "from orchestrator import helper", "mine:train"),
        ("trainables/own.py", "", "trainables.own:train"),
    ],
)
def test_names_of_packages_of_haltsweep_are_explained(file, code, path, write_module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("def train(settings, trial): ...")
    write_module("mine", code)
    with pytest.raises(ValueError, match=rf"; {re.split('[./]', file)[0]} .*haltsweep"):
        load(path)
