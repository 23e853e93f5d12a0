"""Attributes of a contract class are used or refused, because a misspelt one would skip tests silently."""

import pytest

from trainables.testing import task_contract, trainable_contract


def test_unknown_attribute_of_a_contract_is_refused() -> None:
    with pytest.raises(TypeError, match=r"TaskContract .*'solver'.*'solve'"):
        task_contract("listops", solver=len)
    with pytest.raises(TypeError, match=r"TrainableContract .*'split'.*'splits'"):
        trainable_contract("mine:train", split=("test",))
    with pytest.raises(TypeError, match=r"TrainableContract .*'qqq'$"):
        trainable_contract("mine:train", qqq=1)


def test_known_attributes_of_a_contract_are_used() -> None:
    contract = trainable_contract("mine:train", splits=(), pytestmark=[pytest.mark.slow])
    assert contract.splits == ()
    assert [mark.name for mark in contract.pytestmark] == ["slow"]
