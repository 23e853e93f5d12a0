"""Masks are to the bit those that are drawn without a compiler."""

import numpy as np
import pytest
import torch

from trainables.layers.dropout import DropoutGroup, KeyedDropout, set_dropout_context
from trainables.layers.mask_draws import scattered
from trainables.regions.masks import WeightMask, drawn

PLACES = 50


def begun(*dropouts: KeyedDropout) -> torch.nn.ModuleList:
    model = torch.nn.ModuleList(dropouts)
    set_dropout_context(model, seed=2**40 + 3, step=1)
    return model


def test_masks_of_a_group_are_its_own() -> None:
    place = scattered(torch.arange(PLACES))
    dropouts = begun(KeyedDropout(0.3, 6), KeyedDropout(0.3, 9))
    group = DropoutGroup(dropouts)
    salt = group._salt(list(dropouts), (6, 9), place.device).clone()
    begun(*dropouts)
    group.draw(place)
    first, second = (each.taken(place, each.columns) for each in dropouts)
    whole = drawn(place, salt, dropouts[0].levels)
    assert torch.equal(whole[:, :6], first)
    assert torch.equal(whole[:, 6:15], second)
    assert 0 < whole.float().mean() < 1


@pytest.mark.parametrize("keys", [1, 7, 8])
def test_masks_of_attention_weights_are_its_own(keys: int) -> None:
    (dropout,) = begun(KeyedDropout(0.4))
    place = scattered(torch.arange(12).view(3, 4))
    key, stride, heads = dropout.draw(), 1 << 16, 2
    pair, head = np.arange((keys + 1) // 2), np.arange(heads)[:, None, None]
    expected = dropout.mask(key, place[:, None, :, None], head * stride + pair, keys)
    begun(dropout)
    # There may be salts of more keys than there are.
    salt = dropout.salt(head * stride + np.arange((keys + 3) // 2), place.device).flatten(0, 1)
    found = WeightMask(salt, dropout.levels, 1.0).keep(place, torch.arange(keys))
    assert torch.equal(found, expected)
