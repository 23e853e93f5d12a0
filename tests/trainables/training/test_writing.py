"""What is measured of written answers: by hand, and by a task's own score."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from orchestrator.plan.ablation_check.differences import LEARNS
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.training_code.settings import System, checked
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


def test_scores_by_hand() -> None:
    found = scores(TASK, [[1], [2, 3], [], [4]], [[1], [2], [], [1]])
    assert found == {"exact_match": 0.5, "exact_match_floor": 0.5, "answer_length": 1.0}


def score(config: Settings, hypotheses: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
    assert config == TASK
    return {"longer": sum(len(a) > len(b) for a, b in zip(hypotheses, references, strict=True))}


@pytest.fixture
def scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("scoring")
    module.__dict__.update(vars(task_catalog.task_module("logical_inference")) | {"score": score})
    monkeypatch.setattr(writing, "task_module", lambda _: module)


@pytest.mark.usefixtures("scoring")
def test_a_task_adds_scores_of_its_own() -> None:
    assert scores(TASK, [[1], [2, 3]], [[1], [2]])["longer"] == 1.0


def test_greedy_answers_are_right_where_all_tokens_were_under_teacher_forcing() -> None:
    learner = Learner(build_model(MODEL, SHAPE, seed=1), train_config({"steps": 1}), seed=1)
    batches = [synthetic_batch(SHAPE, 6, 9, seed=0), synthetic_batch(SHAPE, 3, 4, seed=1)]
    # Taught nothing, it is right by chance alone: ask for what it says.
    batches[0].labels[:, 0] = 6
    batches[0].labels[:, 1:] = NOT_ASKED
    learner.model.readout.outer.bias.data[6] = 9.0
    found = measure_writing(learner, batches, TASK)
    assert found["exact_match"] == evaluate(learner, batches)["accuracy_whole"] == pytest.approx(6 / 9)
    assert learner.model.training


@pytest.mark.usefixtures("scoring")
@pytest.mark.parametrize("model", [MODEL, UNIVERSAL], ids=["transformer", "universal"])
def test_the_planner_knows_the_metrics_and_proves_the_system(model: dict[str, Any]) -> None:
    system = checked({"task": RAW, "model": model, "train": {"steps": 1}})
    assert isinstance(system, System)
    known = Probe().metrics(system)
    assert {"valid/exact_match", "valid/accuracy", "valid/accuracy_whole", "valid/longer"} < set(known)
    assert Probe().measure(system, LEARNS).norm > 0
    assert Probe().structure(system).flops_max > 0
