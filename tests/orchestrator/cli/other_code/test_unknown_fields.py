"""Unknown fields of a custom trainable: one check reports all of them."""

import pytest

from tests.support.training_code.own_code import forgotten

CONFIG = """
from pydantic import BaseModel, model_validator


class Optimiser(BaseModel):
    lr: float = 0.1
    momentum: float = 0.9


class Config(BaseModel):
    width: int = 8
    optimiser: Optimiser = Optimiser()
    extra: Optimiser | None = None
    weights: dict[str, float] = {"a": 1.0}
    stages: list[Optimiser] = []


haltsweep = {"config": Config}
"""
TRAINING_CODE = """
def train(settings, trial):
    trial.report(1, {"valid/accuracy": 0.5})
"""
SPEC = """name: own
question: Which fields are there?
trainable: fields_of_ours:train
baseline:
  width: 8
  optimiser: {lr: 0.1, momentum: 0.9}
  weights: {a: 1.0}
arms:
  one: {why: a try, set: {width: 9}}
  two: {why: a try, set: {width: 10}}
confirm: {seeds: [1, 2, 3]}
"""


@pytest.fixture
def check_faults(tmp_path, monkeypatch, haltsweep):
    """Return a function that checks the changed spec with `config` and returns one line per fault."""
    monkeypatch.chdir(tmp_path)

    def check(config, *changes):
        spec = SPEC
        for text_before, text_after in changes:
            assert text_before in spec, text_before
            spec = spec.replace(text_before, text_after)
        (tmp_path / "fields_of_ours.py").write_text(config + TRAINING_CODE)
        (tmp_path / "own.yaml").write_text(spec)
        result = haltsweep("check", "own.yaml")
        faults = [line.removeprefix("own.yaml:") for line in result.err.splitlines()]
        assert result.code == (2 if faults else 0), result
        return faults

    with forgotten(tmp_path):
        yield check


def test_unknown_field_is_reported_for_both_arms(check_faults):
    faults = check_faults(
        CONFIG, ("set: {width: 9}", "set: {widht: 9}"), ("set: {width: 10}", "set: {widht: 10}")
    )
    assert [line.split(": ")[1] for line in faults] == ["arms.one.set.widht", "arms.two.set.widht"]


@pytest.mark.parametrize("config", [CONFIG, ""], ids=["with Config", "without"])
def test_unknown_field_in_a_mapping_is_reported(check_faults, config):
    change = ("set: {width: 9}", "set: {optimiser: {lr: 0.2, momentom: 0.5}}")
    (fault,) = (line for line in check_faults(config, change) if "arms.one" in line)
    assert fault.split(": ")[1] == "arms.one.set.optimiser"


@pytest.mark.parametrize(
    "mapping",
    ["{optimiser: {lr: 0.2}}", "{extra: {lr: 0.2}}", "{weights: {a: 1.0, b: 2.0}}"],
    ids=["fewer fields", "in place of null", "keys that are data"],
)
def test_mapping_of_known_fields_is_accepted(check_faults, mapping):
    assert check_faults(CONFIG, ("{width: 9}", mapping)) == []


def test_field_that_a_validator_renames_is_accepted(check_faults):
    config = CONFIG.replace(
        "class Config(BaseModel):",
        "class Config(BaseModel):\n"
        "    @model_validator(mode='before')\n"
        "    @classmethod\n"
        "    def rename_fields(cls, fields):\n"
        "        return {('width' if key == 'wide' else key): value for key, value in fields.items()}\n",
    )
    changes = [("momentum: 0.9", "momentum: much"), ("set: {width: 9}", "set: {wide: 9}")]
    assert [line.split(": ")[1] for line in check_faults(config, *changes)] == ["baseline.optimiser.momentum"]


def test_unknown_field_in_a_list_is_reported(check_faults):
    change = ("  width: 8", "  width: 8\n  stages: [{lr: 0.1}, {momentom: 0.1}]")
    faults = check_faults(CONFIG, change, ("set: {width: 9}", "set: {stages: [{lrr: 0.2}]}"))
    assert [line.split(": ")[:2] for line in faults] == [
        ["6", "baseline.stages[1].momentom"],
        ["10", "arms.one.set.stages"],
    ]
