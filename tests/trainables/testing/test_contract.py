"""What is said beside a contract is read by it, or refused: a slip would leave out tests without a word."""

import pytest

from trainables.testing import task_contract, trainable_contract


def test_an_attribute_that_the_contract_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match=r"TaskContract has no attribute 'solver'\. Did you mean 'solve'"):
        task_contract("listops", solver=len)
    with pytest.raises(
        TypeError, match=r"TrainableContract has no attribute 'split'\. Did you mean 'splits'"
    ):
        trainable_contract("mine:train", split=("test",))
    with pytest.raises(TypeError, match=r"TrainableContract has no attribute 'qqq'$"):
        trainable_contract("mine:train", qqq=1)


def test_marks_and_attributes_of_the_contract_are_taken() -> None:
    made = trainable_contract("mine:train", splits=(), pytestmark=[pytest.mark.slow])
    assert made.splits == ()
    assert [each.name for each in made.pytestmark] == ["slow"]
