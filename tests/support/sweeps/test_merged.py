"""Merged arms have every value that arms of one change have, and none of them hides what another does."""

import dataclasses
from typing import Any

import pytest
import torch

from tests.support.specs.box import built
from tests.support.sweeps.merged import Change, changed_by, groups, merged
from trainables import catalog
from trainables.layers.dropout import set_dropout_context
from trainables.testing.arms import Raw, base, changed, changes, fits
from trainables.testing.cases import SEED, SHAPE, batch
from trainables.types import Encoded

MODELS = catalog.names("models")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_every_value_of_every_field_is_in_one_arm(model: str, causal: bool) -> None:
    if causal and "causal" not in catalog.config_class("models", model).model_fields:
        return
    config = base(model, {"causal": True} if causal else {})
    raw = config.model_dump(mode="json")
    one_by_one = [change for change in changes(config) if fits(changed(raw, *change), SHAPE)]
    found = [change for group in groups(config, SHAPE) for change in group]
    assert sorted(found, key=repr) == sorted(one_by_one, key=repr)
    for group, arm in zip(groups(config, SHAPE), list(merged(config, SHAPE).values())[1:], strict=True):
        for (first, *rest), value in group:
            place = arm[first]
            for name in rest:
                place = place[name]
            assert place == value


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_no_value_is_hidden_by_another(model: str) -> None:
    """Each changes what its arm computes, if it changes what the small version does."""
    config = base(model, {})
    raw = config.model_dump(mode="json")
    small = outcome(raw)
    for group in groups(config, SHAPE):
        arm = outcome(changed_by(raw, group))
        for change in group if len(group) > 1 else ():
            if differ(outcome(changed(raw, *change)), small):
                assert differ(outcome(without(raw, group, change)), arm), (change, group)


def without(raw: Raw, group: list[Change], change: Change) -> Raw:
    return changed_by(raw, [each for each in group if each is not change])


def outcome(raw: Raw) -> dict[str, Any]:
    """Sizes of weights, and what one pass in training gives."""
    model = built(raw)
    set_dropout_context(model.train(), SEED, 1)
    with torch.no_grad():
        output = model(batch())
    given = {each.name: getattr(output.encoded, each.name) for each in dataclasses.fields(Encoded)}
    sizes = {name: torch.tensor(each.shape) for name, each in model.named_parameters()}
    return sizes | {name: value for name, value in given.items() if value is not None} | {"loss": output.loss}


def differ(single_change: dict[str, Any], other: dict[str, Any]) -> bool:
    return single_change.keys() != other.keys() or any(
        single_change[name].shape != other[name].shape
        or not torch.allclose(single_change[name].double(), other[name].double())
        for name in single_change
    )
