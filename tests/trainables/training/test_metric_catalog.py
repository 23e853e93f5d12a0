"""Metrics are declared next to the code that computes them, and looked up by name."""

import pytest

from orchestrator.plan.space_check.metrics import reported_metrics
from orchestrator.plan.training_code.settings import ParsedSettings, parse_settings
from trainables.assembly import build_model
from trainables.data.synthetic import synthetic_batch
from trainables.metrics import Metric, look_up
from trainables.training.evaluate import halting
from trainables.training.metric_catalog import declared_metrics
from trainables.training.workload import EPOCH_SECONDS
from trainables.types import HeadKind

SMALL = {"name": "universal", "width": 16, "heads": 2, "max_layers": 2}
TASKS = {
    "classify": {"name": "listops"},
    "pair": {"name": "logical_inference"},
    "positions": {"name": "flipflop"},
    "sequence": {"name": "wmt14", "vocabulary_size": 50},
}


@pytest.mark.parametrize("head", TASKS)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_every_reported_metric_is_declared(head: HeadKind, precision: str):
    model = {**SMALL, "causal": True} if head == "positions" else SMALL
    system = parse_settings(
        {"model": model, "task": TASKS[head], "train": {"steps": 1, "precision": precision}}
    )
    assert isinstance(system, ParsedSettings), system
    batch = synthetic_batch(system.shape, 2, 8, 0)
    output = build_model(system.model, system.shape, 0).eval()(batch)
    declared = declared_metrics([TASKS[head]["name"]], [head])
    for name in reported_metrics(system, batch, output):
        declaration = look_up(declared, name)
        assert declaration in declared, f"{name} must be declared"
        assert not declaration.split or name.startswith(f"{declaration.split}/")
    assert {metric.moves_with for metric in declared} == {"", *halting(output.encoded)}


@pytest.mark.parametrize(("task", "expected"), [("listops", True), ("algorithms", False)])
def test_only_tasks_with_epochs_report_their_duration(task: str, expected: bool):
    model = SMALL if task == "listops" else {"name": "looped", "width": 16, "heads": 2}
    system = parse_settings({"model": model, "task": {"name": task}, "train": {"steps": 1}})
    assert isinstance(system, ParsedSettings), system
    batch = synthetic_batch(system.shape, 2, 8, 0)
    output = build_model(system.model, system.shape, 0).eval()(batch)
    assert (EPOCH_SECONDS in reported_metrics(system, batch, output)) == expected


def test_metric_of_one_split_is_not_found_for_another():
    metrics = (Metric("speed", "max", split="train"), Metric("loss", "min"), Metric("loss", split="train"))
    assert look_up(metrics, "train/speed").better == "max"
    assert look_up(metrics, "valid/speed") == Metric("speed")
    assert look_up(metrics, "train/loss").better is None
    assert look_up(metrics, "valid/loss").better == "min"
    assert look_up(metrics, "unknown") == Metric("unknown")
