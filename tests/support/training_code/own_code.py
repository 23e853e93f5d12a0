"""Users' training code in three forms, each with a spec; no module of the tests imports it."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.execution.sweep.open_sweep import OpenSweep

BONUS = """
def train(settings, trial):
    score = 0.5 + settings["bonus"] + trial.seed / 100
    trial.report(1, {"valid/score": score, "test/score": score})
"""
"""Training code whose score is 0.5 plus `bonus` plus a hundredth of the seed."""


@contextmanager
def interrupt_first_trial(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Interrupt each session in the block as soon as its first trial starts."""

    def first_only(session: OpenSweep, *_: object) -> None:
        attempt = session.recorder.next_attempt()
        assert attempt is not None, "the sweep must have a trial to run"
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("orchestrator.execution.sweep.launch._run_driver", first_only)
        yield


@contextmanager
def forgotten(folder: Path) -> Iterator[None]:
    """Forget modules that the block imports from `folder`, and restore the import path."""
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            # A namespace package has no file, but folders.
            attributes = getattr(module, "__dict__", {})
            locations = [attributes.get("__file__", ""), attributes.get("__path__", "")]
            if any(str(folder) in str(location) for location in locations):
                del sys.modules[name]


@contextmanager
def importable_files(folder: Path, files: Mapping[str, str]) -> Iterator[Path]:
    """Write `files` below `folder`, append it to the import path, and forget its modules at the end."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with forgotten(folder):
        sys.path.append(str(folder))
        yield folder


TORCH = '''"""A small network on the digits of scikit-learn: a plain PyTorch script."""

import time

import torch
from sklearn.datasets import load_digits
from torch import nn

metrics = {"accuracy": {"better": "max", "range": [0, 1], "floor": 0.1}}


def build(settings):
    middle = nn.ReLU() if settings["gate"] else nn.Identity()
    return nn.Sequential(nn.Linear(64, settings["width"]), middle, nn.Linear(settings["width"], 10))


def example(settings):
    return torch.ones(4, 64)


def train(settings, trial):
    torch.manual_seed(trial.seed_of("weights"))
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    model = build(settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
    saved, first = trial.folder / "state.pt", 1
    if saved.exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        first = state["epoch"] + 1
    for epoch in range(first, settings["epochs"] + 1):
        time.sleep(settings["pause"])
        torch.manual_seed(trial.seed_of("epoch", epoch))
        for rows in torch.randperm(400).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        found = {"valid/accuracy": share(model, x[400:800], y[400:800])}
        if epoch == settings["epochs"]:
            found |= {f"{split}/accuracy": share(model, x[800:], y[800:]) for split in trial.splits}
        torch.save({"model": model.state_dict(), "epoch": epoch}, saved)
        trial.report(epoch, found)


def evaluate(settings, folder):
    model = build(settings)
    model.load_state_dict(torch.load(folder / "state.pt")["model"])
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    return {"test/accuracy": share(model, x[800:] * settings["scale"], y[800:])}


@torch.no_grad()
def share(model, x, y):
    return (model(x).argmax(-1) == y).float().mean().item()


haltsweep = {"metrics": metrics, "build": build, "example": example, "evaluate": evaluate}
'''
SKLEARN = '''"""A forest of scikit-learn: trained in one go, nothing saved."""

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier


def fit(settings, trial):
    x, y = load_digits(return_X_y=True)
    model = RandomForestClassifier(
        settings["trees"], max_depth=settings["depth"], bootstrap=settings["gate"],
        random_state=trial.seed_of("forest"),
    )
    model.fit(x[:400], y[:400])
    found = {"valid/accuracy": model.score(x[400:800], y[400:800])}
    found |= {f"{split}/accuracy": model.score(x[800:], y[800:]) for split in trial.splits}
    trial.report(1, found)
'''
WORKLOAD = '''"""A random walk with the protocol of a workload."""

import json
import time

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from trainables.protocol import Measurement


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")
    drift: float = Field(ge=-1, le=1)
    gate: bool = True
    steps: int = Field(default=6, ge=1)
    pause: float = 0.0


haltsweep = {"config": Config}


class Walk:
    def __init__(self, job):
        self.job, self.step, self.place = job, 0, 0.0

    @property
    def finished(self):
        return self.step == self.job.settings["steps"]

    def advance(self):
        time.sleep(self.job.settings["pause"])
        self.step += 1
        stream = np.random.default_rng([self.job.seed, self.step])
        self.place += self.job.settings["drift"] * (1 + self.job.settings["gate"]) + stream.normal() / 10
        found = {"valid/score": self.place}
        if self.finished:
            found |= {f"{split}/score": self.place for split in self.job.splits}
        return Measurement(self.step, float(self.step), found)

    def save(self, folder):
        (folder / "state.json").write_text(json.dumps([self.step, self.place]))

    def restore(self, folder):
        self.step, self.place = json.loads((folder / "state.json").read_text())

    def close(self):
        pass
'''
SPEC_HEAD = """name: own
question: Does the gate matter?
arms:
  minus-gate: {why: no gate, set: {gate: false}}
confirm: {best: 1, seeds: [11, 12], splits: [test]}
resources: {cpus: 1, checkpoint_seconds: 0.01}
"""
SEARCH = """search:
  also: {%s}
  sampler: random
  trials_per_arm: 2
  objectives: [{metric: %s, goal: max}]
"""
FORMS = {
    "torch": (
        "digits",
        TORCH,
        SPEC_HEAD
        + SEARCH % ("lr: {float: [0.1, 1.0], log: true}", "valid/accuracy")
        + "trainable: digits:train\n"
        + "baseline: {width: 16, gate: true, lr: 0.3, epochs: 4, pause: 0.0, scale: 1.0}\n"
        + "posthoc: {scale: [0.5]}\n",
    ),
    "sklearn": (
        "forest",
        SKLEARN,
        SPEC_HEAD
        + SEARCH % ("depth: {int: [2, 6]}", "valid/accuracy")
        + "trainable: forest:fit\nbaseline: {trees: 5, depth: 3, gate: true}\n",
    ),
    "workload": (
        "walk",
        WORKLOAD,
        SPEC_HEAD
        + SEARCH % ("drift: {float: [0.0, 1.0]}", "valid/score")
        + "trainable: walk:Walk\nbaseline: {drift: 0.5}\n",
    ),
}
"""By form: module name, code, and a spec that searches, confirms and, if possible, re-evaluates."""
