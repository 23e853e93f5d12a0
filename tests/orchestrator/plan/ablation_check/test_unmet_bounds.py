"""Bounds and numbers beyond all that a trial meets are refused; those that something meets are not."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from orchestrator.errors import PlanError
from tests.orchestrator.plan.ablation_check.test_lying_arms import (
    SPARSE,
    STRINGS,
    TRAIN,
    WRITER,
    spec_of,
    system,
)
from tests.support.specs.planned import plan
from tests.trainables.training.support.rehearsal import TASK, measured
from tests.trainables.training.support.rehearsal import TRAIN as SHORT
from trainables.assembly import model_config
from trainables.data.order import Bucketed
from trainables.settings import within
from trainables.training.config import TrainConfig
from trainables.training.likes import EPS_LEAST

DIGITS = {"name": "digits"}
PIXELS = 64
CFQ = {"name": "cfq", "source_vocabulary_size": 50, "target_vocabulary_size": 60}
FEW_TREES = {"name": "listops", "trees": 5000, "near_iid_examples": 100, "train_length_max": 6000}


def sparse(window: int) -> dict[str, Any]:
    return {**SPARSE, "attention": {**SPARSE["attention"], "window": window}}


LIES: Mapping[str, tuple[dict[str, Any], Mapping[str, Any]]] = {
    "a table of offsets beyond all images": (
        system(DIGITS, sparse(2000)),
        {"model.attention.window": 3000},
    ),
    "a window of decisions beyond all images": (
        system(DIGITS, {"name": "crvnn", "width": 16, "window": 2001}),
        {"model.window": 3001},
    ),
    "a bound that no tree meets": (system(FEW_TREES), {"task.train_length_max": 8000}),
    "chunks longer than all inputs": (
        system(
            {"name": "logical_inference"}, {"name": "tlb", "width": 16, "heads": 2, "chunk": {"size": 2000}}
        ),
        {"model.chunk.size": 3000},
    ),
    "rates that learn nothing": (system(train={**TRAIN, "lr": 1e-30}), {"train.lr": 1e-28}),
    "a moment that is lost": (system(train={**TRAIN, "betas": [0.0, 0.98]}), {"train.betas": [1e-12, 0.98]}),
    "an eps that is lost": (system(train={**TRAIN, "eps": 1e-20}), {"train.eps": 1e-18}),
    "a batch of more tokens than there are": (
        system(STRINGS, WRITER, {**TRAIN, "order": "bucketed", "batch_tokens": 50_000_000}),
        {"train.batch_tokens": 100_000_000},
    ),
    "a choice among one loop": (
        system(
            {"name": "algorithms"},
            {"name": "looped", "width": 16, "heads": 2, "loops": 1, "max_loops": 1, "stop": "batch"},
        ),
        {"model.stop": "instance"},
    ),
}
HONEST: Mapping[str, tuple[dict[str, Any], Mapping[str, Any]]] = {
    "a table of offsets that images reach": (
        system(DIGITS, sparse(PIXELS - 5)),
        {"model.attention.window": PIXELS},
    ),
    "a smaller one than all": (system(DIGITS, sparse(2000)), {"model.attention.window": 4}),
    "classes that are predicted": (system(CFQ, WRITER), {"task.target_vocabulary_size": 70}),
    "a bound that trees meet": (system(FEW_TREES), {"task.train_length_max": 100}),
    "an eps that is met": (system(train={**TRAIN, "eps": 1e-16}), {"train.eps": 1e-12}),
    "rates that learn": (system(train={**TRAIN, "lr": 1e-30}), {"train.lr": 1e-5}),
}


@pytest.mark.parametrize("name", LIES)
def test_what_nothing_meets_is_refused(name: str) -> None:
    settings, sets = LIES[name]
    with pytest.raises(PlanError, match="lie changes nothing against baseline"):
        plan(spec_of(settings, {"lie": sets}))


@pytest.mark.parametrize("name", HONEST)
def test_what_something_meets_is_not(name: str) -> None:
    settings, sets = HONEST[name]
    assert plan(spec_of(settings, {"honest": sets})).proofs[1].evidence


def test_a_test_split_that_is_read_may_meet_what_training_does_not() -> None:
    arms = {"wider": {"model.attention.window": 150}}
    settings = system(
        {"name": "listops", "trees": 500, "near_iid_examples": 50, "valid_examples": 50}, sparse(120)
    )
    longer = plan(spec_of(settings, arms, ("length-200-300",)))
    assert longer.proofs[1].evidence


def test_of_a_thousand_times_the_least_eps_a_short_training_sees_no_bit() -> None:
    def trained(eps: float) -> tuple[Any, ...]:
        return measured(TASK, TrainConfig.model_validate(SHORT | {"eps": eps}).model_dump(mode="json"))

    assert trained(1000 * EPS_LEAST) == trained(EPS_LEAST)
    assert trained(1e-8) != trained(EPS_LEAST)


def test_a_batch_of_all_examples_is_another_one_where_inputs_of_like_length_are_together() -> None:
    """So `order: bucketed` with as many samples as there are is an arm: a batch has some of them often."""
    lengths = np.arange(1, 9)
    batches = [Bucketed(lengths, len(lengths), seed=0).batch_indices(step) for step in range(4)]
    assert all(len(set(batch.tolist())) < len(lengths) for batch in batches)


def test_a_model_within_its_inputs_is_itself() -> None:
    config = model_config(sparse(30))
    assert within(config, 31) is config
    assert within(config, 30).attention.window == 29
