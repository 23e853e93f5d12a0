"""Metrics of decoded answers equal values computed by hand and by a task's `score`."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from orchestrator.plan.ablation_check.differences import TRAINING_PASS
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.training_code.settings import ParsedSettings, parse_settings
from trainables import task_catalog
from trainables.assembly import build_model
from trainables.data.synthetic import synthetic_batch
from trainables.settings import Settings
from trainables.training import writing
from trainables.training.config import train_config
from trainables.training.evaluate import evaluate
from trainables.training.step import Learner
from trainables.training.writing import measure_writing, scores
from trainables.types import NOT_ASKED, TaskShape

RAW = {"name": "logical_inference", "form": "sequence"}
TASK = task_catalog.task_config(RAW)
SHAPE = TaskShape("sequence", 9, 7, pad_id=8, length_max=9, end_id=6, answer_length_max=8)
MODEL = {"name": "transformer", "width": 8, "heads": 2, "layers": 1}
UNIVERSAL = {"name": "universal", "width": 8, "heads": 2, "max_layers": 2}


def test_scores_equal_hand_computed_values() -> None:
    metrics = scores(TASK, [[1], [2, 3], [], [4]], [[1], [2], [], [1]])
    assert metrics == {"exact_match": 0.5, "exact_match_floor": 0.5, "answer_length": 1.0}


def score(config: Settings, hypotheses: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
    assert config == TASK
    return {"longer": sum(len(a) > len(b) for a, b in zip(hypotheses, references, strict=True))}


@pytest.fixture
def scoring_task(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("scoring")
    module.__dict__.update(vars(task_catalog.task_module("logical_inference")) | {"score": score})
    monkeypatch.setattr(writing, "task_module", lambda _: module)


@pytest.mark.usefixtures("scoring_task")
def test_task_can_add_scores() -> None:
    assert scores(TASK, [[1], [2, 3]], [[1], [2]])["longer"] == 1.0


def test_greedy_accuracy_equals_accuracy_under_teacher_forcing() -> None:
    learner = Learner(build_model(MODEL, SHAPE, seed=1), train_config({"steps": 1}), seed=1)
    batches = [synthetic_batch(SHAPE, 6, 9, seed=0), synthetic_batch(SHAPE, 3, 4, seed=1)]
    # The untrained model gets a bias toward its labels, so that some answers are right.
    batches[0].labels[:, 0] = 6
    batches[0].labels[:, 1:] = NOT_ASKED
    learner.model.readout.outer.bias.data[6] = 9.0
    metrics = measure_writing(learner, batches, TASK)
    assert metrics["exact_match"] == evaluate(learner, batches)["accuracy_whole"] == pytest.approx(6 / 9)
    assert learner.model.training


@pytest.mark.usefixtures("scoring_task")
def test_planner_knows_the_metrics_and_checks_the_model() -> None:
    system = parse_settings({"task": RAW, "model": UNIVERSAL, "train": {"steps": 1}})
    assert isinstance(system, ParsedSettings)
    metric_names = Probe().metrics(system)
    assert {"valid/exact_match", "valid/accuracy", "valid/accuracy_whole", "valid/longer"} < set(metric_names)
    assert Probe().measure(system, TRAINING_PASS).norm > 0
    assert Probe().structure(system).flops_max > 0
