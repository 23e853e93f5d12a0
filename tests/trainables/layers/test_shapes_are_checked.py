"""Tests of layers check shapes and types of every call; conftest.py selects them by folder."""

import pytest
import torch
from jaxtyping import TypeCheckError

from trainables.layers.attention.attend import additive_mask


def test_mask_with_a_missing_axis_is_refused() -> None:
    with pytest.raises(TypeCheckError):
        additive_mask(torch.ones(2, 3, 4, dtype=torch.bool)[0], torch.float32)
