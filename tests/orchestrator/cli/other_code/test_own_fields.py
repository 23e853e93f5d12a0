"""Fields that own training code does not have: each is told in the first round, whatever else is wrong."""

import pytest

from tests.support.training_code.own_code import forgotten

CONFIG = """
from pydantic import AliasChoices, BaseModel, Field, model_validator


class Optimiser(BaseModel):
    lr: float = 0.1
    momentum: float = 0.9


class Other(BaseModel):
    model_config = {"extra": "forbid"}
    betas: list[float]


class Config(BaseModel):
    width: int = 8
    optimiser: Optimiser = Optimiser()
    extra: Optimiser | None = None
    weights: dict[str, float] = {"a": 1.0}
    stages: list[Optimiser] = []
    either: Optimiser | Other = Optimiser()


haltsweep = {"config": Config}
"""
TRAIN = """
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
def told_of(tmp_path, monkeypatch, haltsweep):
    """What `check` says of the spec, changed, beside code that begins as given, a line a fault."""
    monkeypatch.chdir(tmp_path)

    def check(config, *changes):
        spec = SPEC
        for old, new in changes:
            assert old in spec, old
            spec = spec.replace(old, new)
        (tmp_path / "fields_of_ours.py").write_text(config + TRAIN)
        (tmp_path / "own.yaml").write_text(spec)
        result = haltsweep("check", "own.yaml")
        shown = [line.removeprefix("own.yaml:") for line in result.err.splitlines()]
        assert result.code == (2 if shown else 0), result
        return shown

    with forgotten(tmp_path):
        yield check


def test_the_same_unknown_field_is_reported_for_both_arms(told_of):
    shown = told_of(CONFIG, ("set: {width: 9}", "set: {widht: 9}"), ("set: {width: 10}", "set: {widht: 10}"))
    assert [line.split(": ")[1] for line in shown] == ["arms.one.set.widht", "arms.two.set.widht"]


@pytest.mark.parametrize("config", [CONFIG, ""], ids=["with Config", "without"])
def test_an_unknown_field_in_a_mapping_of_an_arm_is_reported(told_of, config):
    sets = ("set: {width: 9}", "set: {optimiser: {lr: 0.2, momentom: 0.5}}")
    (shown,) = (line for line in told_of(config, sets) if "arms.one" in line)
    where, message = shown.split(" Known")[0].split(": ", 2)[1:]
    assert where == "arms.one.set.optimiser"
    assert message == (
        "fields_of_ours:train has no field optimiser.momentom. Did you mean 'optimiser.momentum'?"
    )


@pytest.mark.parametrize(
    "sets",
    ["{optimiser: {lr: 0.2}}", "{extra: {lr: 0.2}}", "{weights: {a: 1.0, b: 2.0}}"],
    ids=["fewer fields", "in place of null", "keys that are data"],
)
def test_a_mapping_of_known_fields_is_accepted(told_of, sets):
    assert told_of(CONFIG, ("{width: 9}", sets)) == []


@pytest.mark.parametrize(
    "config",
    [
        CONFIG.replace(
            "width: int = 8", "width: int = Field(8, validation_alias=AliasChoices('width', 'wide'))"
        ),
        CONFIG.replace(
            "class Config(BaseModel):",
            "class Config(BaseModel):\n"
            "    @model_validator(mode='before')\n"
            "    @classmethod\n"
            "    def renamed(cls, given):\n"
            "        return {('width' if key == 'wide' else key): each for key, each in given.items()}\n",
        ),
    ],
    ids=["an alias", "a validator"],
)
def test_a_field_with_an_alias_is_accepted(told_of, config):
    wrong = [("momentum: 0.9", "momentum: much"), ("set: {width: 9}", "set: {wide: 9}")]
    assert [line.split(": ")[1] for line in told_of(config, *wrong)] == ["baseline.optimiser.momentum"]


def test_an_unknown_field_in_a_list_is_reported(told_of):
    wrong = ("  width: 8", "  width: 8\n  stages: [{lr: 0.1}, {momentom: 0.1}]")
    shown = told_of(CONFIG, wrong, ("set: {width: 9}", "set: {stages: [{lrr: 0.2}]}"))
    assert [line.split(" Known")[0] for line in shown] == [
        "6: baseline.stages[1].momentom: fields_of_ours:train has no field stages.1.momentom.",
        "10: arms.one.set.stages: fields_of_ours:train has no field stages.0.lrr. Did you mean 'stages'?",
    ]


def test_the_suggested_field_is_one_of_the_arm(told_of):
    other = ("set: {width: 9}", "set: {either: {lr: 0.2, momentun: 0.5}}")
    (shown,) = told_of(CONFIG, ("  width: 8", "  width: 8\n  either: {betas: [0.1]}"), other)
    assert "has no field either.momentun. Did you mean 'either.momentum'?" in shown


def test_fields_of_a_grid_are_accepted(told_of):
    grid = ("confirm:", "grid: {optimiser.lr: [0.1, 0.3]}\nconfirm:")
    assert told_of(CONFIG, grid) == []
    (shown,) = told_of(CONFIG, grid, ("  width: 8", "  width: 8\n  widht: 8"))
    assert shown.startswith("6: baseline.widht: fields_of_ours:train has no field widht.")
