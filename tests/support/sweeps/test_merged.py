"""Merged arms have every value that arms with one change have."""

import pytest

from tests.support.sweeps.merged import change_groups, merged_arms
from trainables import catalog
from trainables.testing.arms import base, is_valid_for, possible_changes, with_change
from trainables.testing.cases import SHAPE

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
