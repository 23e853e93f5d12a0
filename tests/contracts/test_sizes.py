"""Sizes that are refused before a model's code is imported are impossible for all code."""

from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from orchestrator.spec.document import Document, Origin
from orchestrator.spec.sizes import check
from trainables import catalog
from trainables.settings import DEPTH, DEPTHS, MAX_INTEGER, SHARED_LAYERS_MAX
from trainables.training.config import TrainConfig

NAMED = [(kind, name) for kind in catalog.KINDS for name in catalog.names(kind)]
ROOTS = {"models": "model", "tasks": "task"}


def fields(config, above=""):
    """Yield every field of `config` and of nested settings, by path."""
    for name, field in config.model_fields.items():
        yield f"{above}{name}", field
        for inner in settings_in(field.annotation):
            yield from fields(inner, f"{above}{name}.")


def settings_in(kind: Any):
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for inner in get_args(kind):
        yield from settings_in(inner)


def accepts(field, value):
    """Return whether the field accepts `value`, without the rule on whole numbers."""
    try:
        TypeAdapter(Annotated[field.annotation, field]).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def error_message(root, path, value):
    """Return the message about a spec that contains only `value` at this path."""
    inner: Any = value
    for part in reversed(path.split(".")):
        inner = {part: inner}
    data = {"baseline": {root: inner}}
    return [fault.path for fault in check(Document(data, Origin("spec.yaml")))]


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_built_in_fields_have_the_limits_that_are_checked_without_code(kind, name):
    root = ROOTS[kind]
    for path, field in fields(catalog.config_class(kind, name)):
        assert not accepts(field, float(MAX_INTEGER) * 2), (
            f"{path} must be a whole number or have a largest value"
        )
        counts = accepts(field, MAX_INTEGER + 1) and not path.endswith("seed")
        assert not counts or error_message(root, path, MAX_INTEGER + 1), path
        is_depth = DEPTH in field.metadata
        assert is_depth == (root == "model" and path in DEPTHS), f"{path}: {DEPTHS=} must name every depth"
        if is_depth:
            assert not accepts(field, SHARED_LAYERS_MAX + 1)
            assert error_message(root, path, SHARED_LAYERS_MAX + 1)
            assert not error_message(root, path, SHARED_LAYERS_MAX)
        else:
            assert not error_message(root, path, MAX_INTEGER)


def test_greatest_depth_is_that_of_a_model():
    models = [catalog.config_class("models", name) for name in catalog.names("models")]
    depths = [(path, field) for model in models for path, field in fields(model) if path in DEPTHS]
    assert {path for path, _ in depths} == DEPTHS
    assert any(accepts(field, SHARED_LAYERS_MAX) for _, field in depths)


def test_only_whole_numbers_of_training_have_a_largest_value():
    assert not error_message("train", "steps", MAX_INTEGER)
    refused_paths = {
        path for path, field in fields(TrainConfig) if error_message("train", path, MAX_INTEGER + 1)
    }
    for path, field in fields(TrainConfig):
        # The types of exempt fields refuse values above their largest one.
        assert (path in refused_paths) == (not holds_fractions(field)), path
    assert "lr" not in refused_paths
    assert {"batch_size", "steps", "halve_after", "beam_size"} <= refused_paths


def holds_fractions(field):
    return "float" in str(field.annotation)
