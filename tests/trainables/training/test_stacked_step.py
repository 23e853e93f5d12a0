"""Steps of several learners at once give each what it gives it alone, on every model and head that can."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.box import MODELS
from tests.trainables.training.stacks import (
    MEMBERS,
    batches,
    check_alike,
    check_stack,
    check_weights,
    learner,
    stackable,
)
from tests.trainables.training.steps import SHAPES, small
from trainables import catalog
from trainables.assembly import model_config
from trainables.data.synthetic import synthetic_batch
from trainables.training import stacked_step
from trainables.training.stacked_step import LearnerStack, NextStep, StackedUpdateFailed, StepsTogether
from trainables.training.state import TrainingProgress, TrainingState
from trainables.training.step import Learner, StepResult, one_step


@pytest.mark.parametrize(("name", "head"), stackable())
def test_a_step_together_is_the_step_of_each(name: str, head: str) -> None:
    check_stack(small(name, SHAPES[head]), SHAPES[head])


def test_every_model_whose_layers_know_of_others_is_tried() -> None:
    named = {name for name in MODELS if getattr(catalog.load("models", name), "STACKED", False)}
    assert {name for name, _ in stackable()} == named
    assert {head for _, head in stackable()} == SHAPES.keys()


@pytest.mark.parametrize("train", [{"optimizer": "ranger", "steps": 12}, {"ema": 0.5}, {"clip": None}])
def test_so_it_is_for_every_optimiser(train: dict[str, Any]) -> None:
    raw, shape = small("universal", SHAPES["classify"], early_exit="none"), SHAPES["classify"]
    apart, together = ([learner(raw, shape, seed, **train) for seed in range(MEMBERS)] for _ in range(2))
    stack = LearnerStack(together)
    for step in range(7):
        given = batches(shape, step)
        alone = [one_step(each, batch, step) for each, batch in zip(apart, given, strict=True)]
        check_alike(stack.step(given, step), alone)
    stack.dissolve()
    for one, other in zip(apart, together, strict=True):
        check_weights(one, other)
        for name, average in (one.average or {}).items():
            torch.testing.assert_close((other.average or {})[name], average)


def test_what_leaves_a_stack_goes_on_alone_as_if_it_had_been() -> None:
    """Weights, moments and counts of steps are its own, and those of the others theirs."""
    raw, shape = small("transformer", SHAPES["classify"]), SHAPES["classify"]
    apart, together = ([learner(raw, shape, seed) for seed in range(MEMBERS)] for _ in range(2))
    steps = StepsTogether()
    for step in range(6):
        given = batches(shape, step)
        alone = [one_step(each, batch, step) for each, batch in zip(apart, given, strict=True)]
        here = [NextStep(each, batch) for each, batch in zip(together, given, strict=True)]
        # First all, then one alone beside the others, then all again.
        found = steps(here, step) if step not in {2, 3} else [*steps(here[:1], step), *steps(here[1:], step)]
        check_alike([each for each in found if isinstance(each, StepResult)], alone)
    for one, other in zip(apart, together, strict=True):
        check_weights(one, other)
    assert steps.stack is not None
    assert len(steps.stack.learners) == MEMBERS


@pytest.mark.parametrize("failing", ["_clip", "get_ema_multi_avg_fn"])
def test_a_step_that_fails_is_taken_alone_unless_weights_had_taken_it(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory may run out before the update or within it; no weight is ever stepped twice."""
    raw, shape = small("transformer", SHAPES["classify"]), SHAPES["classify"]
    apart, together = ([learner(raw, shape, seed, ema=0.9) for seed in range(2)] for _ in range(2))
    steps = StepsTogether()

    def fails(*_: object) -> None:
        raise MemoryError("no memory left")

    for step in range(2):
        given = batches(shape, step)[:2]
        for each, batch in zip(apart, given, strict=True):
            one_step(each, batch, step)
        if step == 1:
            where = LearnerStack if failing == "_clip" else stacked_step
            monkeypatch.setattr(where, failing, fails)
        found = steps([NextStep(each, batch) for each, batch in zip(together, given, strict=True)], step)
    assert steps.apart
    assert steps.stack is None
    for one, other, each in zip(apart, together, found, strict=True):
        check_weights(one, other)
        assert isinstance(each, StepResult if failing == "_clip" else StackedUpdateFailed)


def test_a_state_that_is_saved_in_a_stack_is_that_of_one(tmp_path: Path) -> None:
    raw, shape = small("transformer", SHAPES["classify"]), SHAPES["classify"]
    apart, together = ([learner(raw, shape, seed, ema=0.9) for seed in range(2)] for _ in range(2))
    stack = LearnerStack(together)
    for step in range(2):
        given = batches(shape, step)[:2]
        stack.step(given, step)
        for each, batch in zip(apart, given, strict=True):
            one_step(each, batch, step)
    for number, (one, other) in enumerate(zip(apart, together, strict=True)):
        stack.settle(other)
        states = {"apart": one, "together": other}
        for label, each in states.items():
            (folder := tmp_path / f"{label}-{number}").mkdir()
            TrainingState(each, {}, TrainingProgress(step=2)).save(folder)
        again = learner(raw, shape, 7, ema=0.9)
        state = TrainingState(again, {}, TrainingProgress())
        state.restore(tmp_path / f"together-{number}")
        batch = batches(shape, 2)[number]
        check_alike([one_step(again_of(again, number), batch, 2)], [one_step(one, batch, 2)])


def again_of(restored: Learner, seed: int) -> Learner:
    """What was restored, with the seed of its trial."""
    restored.seed = seed
    return restored


def test_batches_of_other_sizes_are_run_apart() -> None:
    raw, shape = small("transformer", SHAPES["classify"]), SHAPES["classify"]
    apart, together = ([learner(raw, shape, seed) for seed in range(2)] for _ in range(2))
    given = [synthetic_batch(shape, rows, 6, seed=rows) for rows in (3, 5)]
    steps = StepsTogether()
    found = steps([NextStep(each, batch) for each, batch in zip(together, given, strict=True)], 0)
    alone = [one_step(each, batch, 0) for each, batch in zip(apart, given, strict=True)]
    assert steps.stack is None
    for one, other in zip(found, alone, strict=True):
        assert isinstance(one, StepResult)
        assert torch.equal(one.row(), other.row())


@pytest.mark.parametrize("head", ["classify", "pair"])
def test_batches_without_a_second_chunk_are_run_apart_where_memory_is_not_read(head: str) -> None:
    """What fills the memory has no gradient then, and is not decayed."""
    shape, steps = SHAPES[head], StepsTogether()
    raw = small("tlb", shape, readout="end")
    size = model_config(raw).chunk.size  # type: ignore[attr-defined]
    apart, together = ([learner(raw, shape, seed) for seed in range(2)] for _ in range(2))
    given = [synthetic_batch(shape, 4, length, seed=length) for length in (size + 1, 3 * size)]
    given[0] = replace(given[0], mask=given[0].mask & (torch.arange(size + 1) < size))
    if head == "classify":
        assert not together[0].model.gradients_of(given[0])  # type: ignore[operator]
    found = steps([NextStep(each, batch) for each, batch in zip(together, given, strict=True)], 0)
    alone = [one_step(each, batch, 0) for each, batch in zip(apart, given, strict=True)]
    assert steps.stack is None
    check_alike([each for each in found if isinstance(each, StepResult)], alone)
    for one, other in zip(apart, together, strict=True):
        check_weights(one, other)
    longer = [synthetic_batch(shape, 4, 3 * size, seed=seed) for seed in range(2)]
    found = steps([NextStep(each, batch) for each, batch in zip(together, longer, strict=True)], 1)
    alone = [one_step(each, batch, 1) for each, batch in zip(apart, longer, strict=True)]
    check_alike([each for each in found if isinstance(each, StepResult)], alone)
    for one, other in zip(apart, together, strict=True):
        check_weights(one, other)
    # What fills the memory has been stepped more often in one, so that moments are corrected otherwise.
    assert steps.apart


def test_learners_that_have_not_come_equally_far_are_refused() -> None:
    raw, shape = small("transformer", SHAPES["classify"]), SHAPES["classify"]
    both = [learner(raw, shape, seed) for seed in range(2)]
    one_step(both[0], batches(shape, 0)[0], 0)
    with pytest.raises(ValueError, match=r"must have been stepped as often in all learners, got \[0, 1\]"):
        LearnerStack(both)


def test_parameters_without_a_gradient_stay_as_they_are() -> None:
    """Nothing halts before the first layer of one, so that its halting function is asked for nothing."""
    raw = small("universal", SHAPES["classify"], early_exit="none", max_layers=1)
    raw |= {"halt": {**raw["halt"], "origin": 1, "transition": False}}
    one = learner(raw, SHAPES["classify"], 0)
    one_step(one, batches(SHAPES["classify"], 0)[0], 0)
    assert any(parameter.grad is None for parameter in one.model.parameters())
    check_stack(raw, SHAPES["classify"])
