"""Merged arms have every value that arms with one change have, and no value hides the effect of another."""

import dataclasses
from typing import Any

import pytest
import torch

from tests.support.specs.box import built
from tests.support.sweeps.merged import Change, apply_changes, change_groups, merged_arms
from trainables import catalog
from trainables.layers.dropout import set_dropout_context
from trainables.testing.arms import Raw, base, is_valid_for, possible_changes, with_change
from trainables.testing.cases import SEED, SHAPE, batch
from trainables.types import Encoded

MODELS = catalog.names("models")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_each_value_is_in_one_merged_arm(model: str, causal: bool) -> None:
    if causal and "causal" not in catalog.config_class("models", model).model_fields:
        return
    config = base(model, {"causal": True} if causal else {})
    raw = config.model_dump(mode="json")
    single_changes = [
        change for change in possible_changes(config) if is_valid_for(with_change(raw, *change), SHAPE)
    ]
    merged_changes = [change for group in change_groups(config, SHAPE) for change in group]
    assert sorted(merged_changes, key=repr) == sorted(single_changes, key=repr)
    for group, arm in zip(
        change_groups(config, SHAPE), list(merged_arms(config, SHAPE).values())[1:], strict=True
    ):
        for (first, *rest), value in group:
            section = arm[first]
            for name in rest:
                section = section[name]
            assert section == value


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_no_change_hides_the_effect_of_another(model: str) -> None:
    """A change that affects the small version also affects its merged arm."""
    config = base(model, {})
    raw = config.model_dump(mode="json")
    small_results = pass_results(raw)
    for group in change_groups(config, SHAPE):
        arm_results = pass_results(apply_changes(raw, group))
        for change in group if len(group) > 1 else ():
            if differ(pass_results(with_change(raw, *change)), small_results):
                assert differ(pass_results(without_change(raw, group, change)), arm_results), (change, group)


def without_change(raw: Raw, group: list[Change], change: Change) -> Raw:
    return apply_changes(raw, [other_change for other_change in group if other_change is not change])


def pass_results(raw: Raw) -> dict[str, Any]:
    """Return the sizes of weights, and the outputs of one pass in training."""
    model = built(raw)
    set_dropout_context(model.train(), SEED, 1)
    with torch.no_grad():
        output = model(batch())
    outputs = {each.name: getattr(output.encoded, each.name) for each in dataclasses.fields(Encoded)}
    sizes = {name: torch.tensor(each.shape) for name, each in model.named_parameters()}
    return (
        sizes | {name: value for name, value in outputs.items() if value is not None} | {"loss": output.loss}
    )


def differ(results: dict[str, Any], other_results: dict[str, Any]) -> bool:
    return results.keys() != other_results.keys() or any(
        results[name].shape != other_results[name].shape
        or not torch.allclose(results[name].double(), other_results[name].double())
        for name in results
    )
