"""What is refused of a size before any model's code is loaded is what no task, model or training can have."""

from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from orchestrator.plan.training_code.settings import checked
from orchestrator.spec.document import Document, Origin
from orchestrator.spec.sizes import check
from trainables import catalog
from trainables.settings import DEPTH, DEPTHS, MOST, MOST_SHARED
from trainables.training.config import TrainConfig

NAMED = [(kind, name) for kind in catalog.KINDS for name in catalog.names(kind)]
ROOTS = {"models": "model", "tasks": "task"}


def fields(config, above=""):
    """Every field of `config` and of the settings inside it, by path."""
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
    """Whether the field alone could have `value`, which the rule on whole numbers is no part of."""
    try:
        TypeAdapter(Annotated[field.annotation, field]).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def refused(root, path, value):
    """What is told of a spec with `value` at this path and nothing else."""
    inner: Any = value
    for part in reversed(path.split(".")):
        inner = {part: inner}
    data = {"baseline": {root: inner}}
    return [fault.path for fault in check(Document(data, Origin("spec.yaml")))]


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_a_field_of_the_box_holds_no_more_than_is_told_without_its_code(kind, name):
    root = ROOTS[kind]
    for path, field in fields(catalog.config_class(kind, name)):
        assert not accepts(field, float(MOST) * 2), f"{path} is no whole number and has no largest value"
        counts = accepts(field, MOST + 1) and not path.endswith("seed")
        assert not counts or refused(root, path, MOST + 1), path
        is_depth = DEPTH in field.metadata
        assert is_depth == (root == "model" and path in DEPTHS), f"{path}: {DEPTHS=} names every depth"
        if is_depth:
            assert not accepts(field, MOST_SHARED + 1)
            assert refused(root, path, MOST_SHARED + 1)
            assert not refused(root, path, MOST_SHARED)
        else:
            assert not refused(root, path, MOST)


def test_some_model_has_the_largest_depth():
    models = [catalog.config_class("models", name) for name in catalog.names("models")]
    depths = [(path, field) for model in models for path, field in fields(model) if path in DEPTHS]
    assert {path for path, _ in depths} == DEPTHS
    assert any(accepts(field, MOST_SHARED) for _, field in depths)


def test_training_has_whole_numbers_with_a_largest_value_and_others_without():
    assert not refused("train", "steps", MOST)
    shown = {path for path, field in fields(TrainConfig) if refused("train", path, MOST + 1)}
    for path, field in fields(TrainConfig):
        # What is exempt here and has a largest value is refused by its own type.
        assert (path in shown) == (not holds_fractions(field)), path
    assert "lr" not in shown
    assert {"batch_size", "steps", "halve_after", "beam_size"} <= shown


def holds_fractions(field):
    return "float" in str(field.annotation)


def test_the_planner_refuses_the_same_whole_numbers():
    train = {"steps": MOST, "batch_size": MOST, "lr": MOST * 10}
    raw = {"task": {"name": "listops"}, "model": {"name": "universal"}, "train": train}
    assert not isinstance(checked(raw), list)
    (fault,) = checked({**raw, "train": {**train, "steps": MOST + 1}})
    assert (fault.path, fault.message) == ("train.steps", "must be at most 1,000,000,000, got 1,000,000,001")
