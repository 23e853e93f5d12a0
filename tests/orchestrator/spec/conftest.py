"""A valid and complete spec that uses every section."""

from collections.abc import Callable
from pathlib import Path

import pytest

WHOLE = """\
name: gut-ablation-listops
question: Which of gating, global halt and transition features makes it work on ListOps?

baseline:
  task:  {name: listops, train_length_max: 100}
  model:
    name: universal
    width: 128
    max_layers: 10
    gate: true
    halt: {unit: sequence, transition: true, threshold: 0.999}
  train: {steps: 20000, batch_size: 128, lr: 5e-4, ponder_weight: 0.1}

arms:
  minus-gate:        {why: plain feed-forward block,      set: {model.gate: false}}
  minus-global-halt: {why: each token decides for itself, set: {model.halt.unit: token}}
  no-halt:
    why: always max_layers
    set: {model.halt: null}
    drop: [model.halt.threshold, train.ponder_weight]

grid: {model.width: [64, 128]}

search:
  spaces: [halting]
  also: {train.lr: {float: [1e-4, 2e-3], log: true}}
  sampler: tpe
  stopper: {name: asha, grace_steps: 1000, reduction: 3}
  trials_per_arm: 24
  objectives: [{metric: valid/accuracy, goal: max}]
  seed: 0

confirm: {best: 1, seeds: [101, 102, 103], splits: [near-iid, length-200-300]}
posthoc: {model.halt.threshold: [0.1, 0.3, 0.5]}
resources: {cpus: 1, gpus: 0.25, minutes: 60}
budget: {wall_clock_hours: 12}
published:
  - {arm: baseline, cell: {model.width: 128}, metric: accuracy, values: {near-iid: 0.9}, source: table 1}
profiles:
  small:
    baseline.train.steps: 100
    confirm.seeds: [101]
    grid.model.width: null
    budget: null
"""

Write = Callable[..., Path]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Return the file of the complete spec."""
    path = tmp_path / "whole.yaml"
    path.write_text(WHOLE, encoding="utf-8")
    return path


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a text to a file and returns the path."""

    def write_file(text: str, name: str = "spec.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file
