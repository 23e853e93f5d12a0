"""Instrumented settings list the fields that code has not read."""

import copy
import json
import os
import pickle

import pytest
from pydantic import BaseModel

from trainables.custom.instrumented_settings import InstrumentedSettings

PLAIN = {"lr": 0.1, "depth": 2, "model": {"width": 8, "gate": True}}


class Model(BaseModel):
    lr: float
    model: dict[str, object]


def match_lr(settings):
    match settings:
        case {"lr": lr}:
            return lr
    return None


def read_in_fork(settings):
    if (child := os.fork()) == 0:
        os._exit(settings["lr"] != PLAIN["lr"])
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize(
    ("use", "unread_fields"),
    [
        (lambda settings: settings["lr"], ["depth", "model"]),
        (lambda settings: settings.get("depth", 1), ["lr", "model"]),
        (lambda settings: settings.pop("lr"), ["depth", "model"]),
        (lambda settings: settings.setdefault("lr", 1), ["depth", "model"]),
        (lambda settings: "lr" in settings, ["depth", "model"]),
        (read_in_fork, ["depth", "model"]),
        (match_lr, ["depth", "model"]),
        (Model.model_validate, ["depth"]),
        (lambda settings: copy.deepcopy(settings)["lr"], ["depth", "model"]),
        (lambda settings: settings["model"]["gate"], ["lr", "depth", "model.width"]),
        (lambda settings: settings["model"], ["lr", "depth"]),  # compiled code may read the model
        (lambda settings: (settings.values(), settings["model"]["width"]), ["model.gate"]),
        (lambda settings: dict(**settings), []),
        (dict, []),
        (lambda settings: settings | {}, []),
        (list, []),
        (lambda settings: list(reversed(settings)), []),
        (lambda settings: settings.popitem(), ["lr", "depth"]),
        (json.dumps, []),
        (pickle.dumps, []),
        (repr, []),  # nothing is listed if no field was read
    ],
)
def test_unread_fields_are_listed(use, unread_fields):
    settings, plain_settings = InstrumentedSettings(PLAIN), copy.deepcopy(PLAIN)
    use(settings)
    assert list(settings.unread_fields()) == unread_fields
    use(plain_settings)
    assert settings == plain_settings


def test_pickled_settings_are_a_plain_dict():
    loaded_settings = pickle.loads(pickle.dumps(InstrumentedSettings(PLAIN)))
    assert (type(loaded_settings), type(loaded_settings["model"])) == (dict, dict)
    assert loaded_settings == PLAIN
