"""Recorded examples show the halting of the forward pass."""

from typing import Any

import pytest
import torch

from trainables.assembly import build_model
from trainables.layers.boundaries import NUM_BOUNDARIES
from trainables.protocol import Job
from trainables.task_catalog import shape, task_config
from trainables.training import Training, workload
from trainables.training.config import train_config
from trainables.training.examples import record_example
from trainables.training.step import Learner
from trainables.types import Batch

TREES = task_config({"name": "listops"})
SMALL_TREES = {"name": "listops", "trees": 200, "near_iid_examples": 20, "valid_examples": 20}
ONE_STEP = {"steps": 1, "batch_size": 4, "report_every": 1}
PAIRS = task_config({"name": "logical_inference"})
HEADS = {"width": 16, "heads": 2}
TOKEN = {"name": "universal", **HEADS, "halt": {"unit": "token", "threshold": 0.9}}
SUT = {
    "name": "sut",
    "width": 16,
    "attention": {"experts": 4, "active": 2, "heads": 2, "head_width": 8},
    "feedforward": {"experts": 3, "active": 1, "width": 8},
    "halt": {"threshold": 0.9},
}
HALTING: list[dict[str, Any]] = [
    TOKEN,
    {"name": "universal", **HEADS, "halt": {"threshold": 0.9}},
    {"name": "gutlb", **HEADS, "chunk": {"size": 3}, "memory": {"slots": 2}, "halt": {"threshold": 0.6}},
    {"name": "crvnn", "width": 16},
    SUT,
]


def learner(model: dict[str, Any], task: Any = TREES, *, spread: bool = True) -> Learner:
    """Build a model; `spread` enlarges weights so that tokens halt at different depths."""
    model_ = build_model(model, shape(task), 1, torch.device("cpu"))
    if spread:
        with torch.no_grad():
            for name, weight in model_.named_parameters():
                if "embedding" in name or "halt" in name:
                    weight.mul_(20)
    return Learner(model_, train_config({"steps": 1}), seed=0)


def tree(length: int) -> Batch:
    """Return a batch with one tree: `[MAX`, digits, `]`."""
    tokens = torch.tensor([[11, *((7 * number) % 10 for number in range(length - 2)), 14]])
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), torch.tensor([9]))


def pair() -> Batch:
    separator = shape(PAIRS).separator_id
    tokens = torch.tensor([[0, 1, 2, separator, 3, 4]])
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), torch.tensor([2]))


@pytest.mark.parametrize("model", HALTING, ids=lambda model: model["name"])
def test_recorded_layers_equal_those_of_the_pass(model: dict[str, Any]) -> None:
    learner_ = learner(model)
    example = record_example(learner_, tree(9), TREES)
    (part,) = example["parts"]
    depths = [sum(layer >= 0 for layer in layers) for layers in part["running"]]
    assert part["length"] == len(part["words"]) == len(depths)
    if model["name"] != "gutlb":  # its depth is a mean over chunks
        assert sum(depths) / len(depths) == pytest.approx(example["depth"], abs=1e-3)
    words = part["words"][1:-1] if part["words"][0] == "START" else part["words"]
    assert words == ["[MAX", "0", "7", "4", "1", "8", "5", "2", "]"]
    assert all(-1 <= layer <= 100 for layers in part["running"] for layer in layers)


@pytest.mark.parametrize("model", HALTING, ids=lambda model: model["name"])
def test_early_exit_records_the_same_layers(model: dict[str, Any]) -> None:
    def parts(early_exit: str) -> list[dict[str, Any]]:
        parts_: list[dict[str, Any]] = record_example(
            learner({**model, "early_exit": early_exit}), tree(9), TREES
        )["parts"]
        for part in parts_:  # trailing layers without computation may be absent
            for layers in part["running"]:
                while layers and layers[-1] == -1:
                    layers.pop()
        return parts_

    assert parts("compact") == parts("batch") == parts("none")


def test_recorded_weights_are_survival_probabilities() -> None:
    """The weights of a token follow from the output of the halting gate."""
    gate_learner = learner({"name": "sut", "width": 16, "early_exit": "none"}, spread=False)
    (part,) = record_example(gate_learner, tree(5), TREES)["parts"]
    # The initial gate halts half of the remaining probability at every state but the embeddings.
    assert part["running"] == [[100, 50, 25, 12, 6, 3]] * (5 + NUM_BOUNDARIES)


def test_example_of_a_pair_has_both_sentences() -> None:
    example = record_example(learner(SUT, PAIRS), pair(), PAIRS)
    assert [len(part["words"]) for part in example["parts"]] == [3 + NUM_BOUNDARIES, 2 + NUM_BOUNDARIES]
    assert example["target"].endswith("entails")
    assert (example["target"] == example["answer"]) == (example["hits"] == 1)


@pytest.mark.parametrize(
    "model", [{"name": "transformer", **HEADS}, {**TOKEN, "halt": None}, {"name": "tlb", **HEADS}]
)
def test_model_without_halting_has_no_example(model: dict[str, Any]) -> None:
    assert record_example(learner(model), tree(9), TREES) == {}


def test_failed_recording_of_examples_keeps_the_metrics(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        "task": SMALL_TREES,
        "model": {"name": "universal", **HEADS, "max_layers": 2},
        "train": ONE_STEP,
    }
    complete = Training(
        Job(settings, seed=1, phase="confirm", splits=("near-iid",), halting_examples=2)
    ).advance()
    assert [example["kind"] for example in complete.examples][:2] == ["map", "map"]

    def raise_error(*_: Any) -> Any:
        raise RuntimeError("rows of another kind")

    monkeypatch.setattr(workload, "record_example", raise_error)
    incomplete = Training(
        Job(settings, seed=1, phase="confirm", splits=("near-iid",), halting_examples=2)
    ).advance()
    assert not incomplete.examples
    assert incomplete.metrics["near-iid/accuracy"] == complete.metrics["near-iid/accuracy"]
    assert "RuntimeError('rows of another kind')" in caplog.text
