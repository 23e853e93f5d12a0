"""Every setting of training whose code ignores it is found out, and none whose code obeys it."""

from collections.abc import Callable, Iterator
from functools import cached_property, wraps
from typing import Any

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.planner import plan
from tests.orchestrator.plan.small import BASELINE, one_arm
from trainables.acting import Acts, tried
from trainables.training import step, writing
from trainables.training.config import TrainConfig
from trainables.training.rehearsal import TRAIN, Rehearsals
from trainables.training.sources import Sources
from trainables.training.step import Learner
from trainables.training.workload import Training

READ_BY: dict[str, tuple[Any, str]] = {
    "steps": (Training, "_train"),
    "report_every": (Training, "_train"),
    "patience": (Training, "_train"),
    "halve_after": (Training, "_halve_rate_if_stale"),
    "select_by": (Training, "_score"),
    "select": (Training, "_choose"),
    "average_best": (Training, "_choose"),
    "batch_size": (Sources, "_order"),
    "batch_tokens": (Sources, "_order"),
    "order": (Sources, "_order"),
    "valid_examples": (Sources, "_measured"),
    "optimizer": (step, "make_optimizer"),
    "eps": (step, "make_optimizer"),
    "weight_decay": (step, "make_optimizer"),
    "lr": (step, "_update"),
    "schedule": (step, "_update"),
    "warmup_steps": (step, "_update"),
    "hold_steps": (step, "_update"),
    "onecycle_beta1": (step, "_update"),
    "betas": (step, "_update"),
    "clip": (step, "_update"),
    "label_smoothing": (step, "objective"),
    "precision": (Learner, "autocast"),
    "beam_size": (writing, "answers"),
    "length_penalty": (writing, "answers"),
    "decode_length_max": (writing, "answers"),
    "decode_examples": (Sources, "to_write"),
}
"""The code that reads a field; that of `ema` is where the model is copied."""
FIELDS = [name for name in TrainConfig.model_fields if tried(TrainConfig, name)]


def break_setting(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the code that reads `field` read what it is without being set."""
    if field == "ema":
        monkeypatch.setattr(step, "copied", lambda _: None)  # no average is kept
        return
    owner, name = READ_BY[field]
    mark = tried(TrainConfig, field)
    assert mark is not None, f"{field} must say how it is tried"
    unset = TRAIN.get(field, mark.values[0])
    raw = vars(owner)[name]

    def deaf(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def ignoring(*given: Any) -> Any:
            holder = given[0]
            if not isinstance(holder, Learner | Training | Sources):  # a function of settings
                given = tuple(_without(each) if isinstance(each, TrainConfig) else each for each in given)
                return function(*given)
            place = "config" if isinstance(holder, Learner) else "_config"
            kept = getattr(holder, place)
            setattr(holder, place, _without(kept))
            try:
                found = function(*given)
                return iter([*found]) if isinstance(found, Iterator) else found
            finally:
                setattr(holder, place, kept)

        return ignoring

    def _without(config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={field: unset})

    if isinstance(raw, cached_property):
        broken = cached_property(deaf(raw.func))
        broken.__set_name__(owner, name)
        monkeypatch.setattr(owner, name, broken)
    else:
        monkeypatch.setattr(owner, name, deaf(raw))


def test_every_setting_of_training_that_can_show_is_tried() -> None:
    running = {
        name
        for name, field in TrainConfig.model_fields.items()
        if any(isinstance(mark, Acts) and mark.where == "running" for mark in field.metadata)
    }
    in_the_loss = {"ponder_weight", "auxiliary_weight", "accumulate"}
    assert running | in_the_loss == TrainConfig.model_fields.keys() - set(FIELDS)
    assert READ_BY.keys() | {"ema"} == set(FIELDS)


@pytest.mark.slow
def test_settings_that_are_obeyed_act() -> None:
    rehearsals = Rehearsals()
    assert [name for name in TrainConfig.model_fields if not rehearsals.acts(name)] == []


@pytest.mark.parametrize("field", FIELDS)
def test_a_setting_that_is_ignored_does_nothing(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_setting(field, monkeypatch)
    assert not Rehearsals().acts(field)


ARMS = {
    "ema": 0.9,
    "clip": 0.5,
    "weight_decay": 0.2,
    "select": "last",
    "batch_size": 8,
}


@pytest.mark.parametrize("field", ARMS)
def test_an_arm_that_sets_what_training_ignores_is_refused(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = one_arm({f"train.{field}": ARMS[field]})
    assert plan(spec).proofs[1].evidence
    break_setting(field, monkeypatch)
    with pytest.raises(PlanError, match=f"changes nothing against baseline: with train.{field} set"):
        plan(spec)


@pytest.mark.parametrize("field", ["beam_size", "decode_length_max"])
def test_an_arm_that_sets_what_decoding_ignores_is_refused(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = {"name": "transduction", "train_examples": 200, "valid_examples": 50, "test_examples": 20}
    model = {"name": "transformer", "width": 16, "heads": 2, "layers": 1}
    spec = one_arm({f"train.{field}": 5}, baseline={**BASELINE, "task": task, "model": model})
    assert plan(spec).proofs[1].evidence == ("writing",)
    break_setting(field, monkeypatch)
    with pytest.raises(PlanError, match=f"changes nothing against baseline: with train.{field} set"):
        plan(spec)


def test_dimensions_that_training_ignores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    search = {
        "also": {"train.weight_decay": {"float": [0.01, 0.3]}},
        "trials_per_arm": 2,
        "objectives": [{"metric": "valid/accuracy", "goal": "max"}],
    }
    spec = one_arm({"model.gate": False}, search=search)
    plan(spec)
    break_setting("weight_decay", monkeypatch)
    with pytest.raises(PlanError, match=r"varies train\.weight_decay, which changes nothing in baseline"):
        plan(spec)
