"""Tests of layers check shapes and types of every call: it is switched in conftest.py, by folders."""

import pytest
import torch
from jaxtyping import TypeCheckError

from trainables.layers.attention.attend import additive_mask


def test_a_mask_with_an_axis_too_few_is_refused() -> None:
    with pytest.raises(TypeCheckError):
        additive_mask(torch.ones(2, 3, 4, dtype=torch.bool)[0], torch.float32)
