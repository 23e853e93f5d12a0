"""The formulas by which models state their costs, against what is counted when they run.

Models are found by their files, and arms by their settings: every switch and every choice, one at a time.
"""

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from trainables import catalog
from trainables.assembly import misfit, model_config
from trainables.counting import counted
from trainables.settings import ModelSettings
from trainables.types import TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)
SMALL = {"width": 16, "early_exit": "none"}
"""Of what a model has; with early exit, what runs depends on the weights."""
LENGTH, ANSWER = 9, 5
FACTOR = 1.6
"""By which an estimate of memory may be wrong, of a model that is all small parts: most at a single input."""
ELSEWHERE = ("name", "early_exit")
"""Choices that change nothing that can be counted."""
ABSENT = ("flash",)
"""Kernels that are not there on a CPU."""


def arms(name: str) -> Iterator[dict[str, Any]]:
    """Settings of the model called `name`: the smaller default, and all that differ from it in one field."""
    fields = catalog.config_class("models", name).model_fields
    base = {"name": name} | {field: value for field, value in SMALL.items() if field in fields}
    if not fits(base):  # what a task would tell must be a number
        base |= {key: 2 for key, each in fields.items() if is_word_or_number(each)}
    yield base
    for key, field in fields.items():
        for value in choices(field.annotation, field.default):
            if key not in ELSEWHERE and value not in ABSENT and fits(base | {key: value}):
                yield base | {key: value}


def is_word_or_number(field: FieldInfo) -> bool:
    return isinstance(field.default, str) and "int" in str(field.annotation)


def choices(kind: Any, default: Any) -> list[Any]:
    """What a field can be beside its default, where these are few."""
    if kind is bool:
        return [not default]
    if get_origin(kind) is Literal:
        return [value for value in get_args(kind) if value != default]
    return [None] if type(None) in get_args(kind) and default is not None else []


def fits(raw: dict[str, Any]) -> bool:
    try:
        return misfit(model_config(raw), SHAPE) is None
    except ValidationError:
        return False


def label(raw: dict[str, Any]) -> str:
    return (
        " ".join(f"{key}={value}" for key, value in raw.items() if key not in ("name", *SMALL)) or "default"
    )


CASES = [
    pytest.param(name, raw, id=f"{name} {label(raw)}")
    for name in catalog.names("models")
    for raw in arms(name)
]


def config_of(raw: dict[str, Any]) -> ModelSettings:
    config = model_config(raw)
    assert isinstance(config, ModelSettings)
    return config


@pytest.mark.parametrize(("name", "raw"), CASES)
def test_flops_of_an_encoder_are_what_is_counted(name: str, raw: dict[str, Any]) -> None:
    config, found = config_of(raw), counted(config_of(raw), "Encoder", LENGTH)
    layers = round(found.computed)
    least, most = catalog.load("models", name).depth_range(config, LENGTH)
    assert least <= layers <= most
    assert catalog.load("models", name).forward_flops(config, LENGTH, layers) == found.flops


@pytest.mark.parametrize(("name", "raw"), CASES)
def test_memory_of_an_encoder_is_about_what_is_counted(name: str, raw: dict[str, Any]) -> None:
    stated = catalog.load("models", name).saved_bytes(config_of(raw), 1, 30)
    assert 1 / FACTOR < stated / counted(config_of(raw), "Encoder", 30).saved_bytes < FACTOR


@pytest.mark.parametrize(
    ("name", "raw"), [case for case in CASES if hasattr(catalog.load("models", case.values[0]), "Decoder")]
)
def test_costs_of_a_decoder_are_what_is_counted(name: str, raw: dict[str, Any]) -> None:
    module, config = catalog.load("models", name), config_of(raw)
    found = counted(config, "Decoder", ANSWER, LENGTH)
    assert module.decoder_flops(config, ANSWER, LENGTH, round(found.computed)) == found.flops
    more = counted(config, "Decoder", 20, 30)
    assert 1 / FACTOR < module.decoder_saved_bytes(config, 1, 20, 30) / more.saved_bytes < FACTOR
