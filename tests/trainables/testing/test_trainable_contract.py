"""Every test of the trainable contract fails for code that violates only the tested property."""

from pathlib import Path
from typing import Any

import pytest

from trainables.testing import trainable_contract

TRAIN = """
import json
import random
from pydantic import BaseModel

class Part(BaseModel):
    size: int = 1

class Config(BaseModel):
    rate: float = 1.0
    part: Part = Part()
    steps: int = 3

haltsweep = {{"config": Config, "metrics": {{"score": {{"better": "max", "range": [0, 1]}}}}}}

def train(settings, trial):
    saved, total, first = trial.folder / "state.json", 0.0, 1
    if saved.exists() and {resumes}:
        first, total = json.loads(saved.read_text())
    for step in range(first, settings["steps"] + 1):
        total += trial.generator("noise", step).random() / 3
        found = {{"valid/score": total}}
        if step == settings["steps"]:
            found |= {{f"{{split}}/score": total for split in {splits}}}
        {before}
        saved.write_text(json.dumps([step + 1, {kept}]))
        trial.report({step}, found)
"""
VALID_PARTS = {"resumes": "True", "splits": "trial.splits", "before": "", "kept": "total", "step": "step"}
FAULTS = {
    "a generator that nobody seeds": (
        "test_the_same_seed_gives_the_same_numbers",
        {"before": "found['valid/noise'] = random.SystemRandom().random()"},
    ),
    "state that is not saved": (
        "test_trial_stopped_at_every_report_ends_like_an_uninterrupted_one",
        {"kept": "0.0"},
    ),
    "a metric out of its range": ("test_metrics_are_as_declared", {"before": "found['valid/score'] += 7"}),
    "test splits seen by a search": ("test_only_confirmations_measure_test_splits", {"splits": "['test']"}),
    "test splits that are not measured": ("test_only_confirmations_measure_test_splits", {"splits": "[]"}),
    "a metric that is no number": (
        "test_reports_are_in_order_and_finite",
        {"before": "found['valid/score'] = float('nan')"},
    ),
}


def call(folder: Path, name: str, test: str, parts: dict[str, str], **settings: Any) -> None:
    (folder / f"{name}.py").write_text(TRAIN.format(**VALID_PARTS | parts))
    tested = trainable_contract(f"{name}:train", {"rate": 2.0, "steps": 3} | settings)()
    trial = folder / f"of-{name}"
    trial.mkdir()
    (raw,) = tested.every_trial().values()
    arguments = getattr(tested, test).__code__.co_varnames[1 : getattr(tested, test).__code__.co_argcount]
    getattr(tested, test)(raw, **({"tmp_path": trial} if "tmp_path" in arguments else {}))


@pytest.mark.parametrize("fault", FAULTS)
def test_contract_finds_a_violation(fault: str, tmp_path: Path) -> None:
    test, parts = FAULTS[fault]
    call(tmp_path, "sound", test, {})
    with pytest.raises(AssertionError):
        call(tmp_path, "broken", test, parts)


@pytest.mark.parametrize(("slip", "path"), [({"widht": 3}, "widht"), ({"part": {"sise": 2}}, r"part\.sise")])
def test_contract_finds_unknown_settings(slip: dict[str, Any], path: str, tmp_path: Path) -> None:
    test = "test_settings_are_accepted_and_survive_a_round_trip"
    call(tmp_path, "sound", test, {}, part={"size": 2})
    with pytest.raises(AssertionError, match=rf"{path}$"):
        call(tmp_path, "broken", test, {}, **slip)


def test_function_without_a_checkpoint_can_be_resumed(tmp_path: Path) -> None:
    """The function starts from the beginning, and its earlier reports are skipped."""
    call(
        tmp_path,
        "sound",
        "test_trial_stopped_at_every_report_ends_like_an_uninterrupted_one",
        {"resumes": "False"},
    )


COUNTING = """
calls = 0

def train(settings, trial):
    global calls
    for step in (1, 2, 3):
        calls += 1
        trial.report(step, {"valid/calls": calls})
"""


def test_each_trial_starts_with_the_initial_globals_of_its_module(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(COUNTING)
    trainable_contract("counting:train")().test_the_same_seed_gives_the_same_numbers({}, tmp_path)


def test_trial_that_ends_its_process_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text("import os\n\ndef train(settings, trial):\n    os._exit(3)\n")
    with pytest.raises(AssertionError, match=r"exit code 3"):
        trainable_contract("leaving:train")().test_reports_are_in_order_and_finite({}, tmp_path)


GLUE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def train(settings, trial):
    x = torch.randn(24, 4)
    loader = DataLoader(TensorDataset(x, x.sum(1)), batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    file, first = trial.folder / "last.pt", 1
    if file.exists():
        state = torch.load(file)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1

    def save(epoch):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        {saving}

    for epoch in range(first, 5):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = (model(inputs)[:, 0] - targets).square().mean()
            loss.backward()
            optimizer.step()
        {before}
        trial.report(epoch, {{"valid/loss": loss.item() + torch.rand(()).item()}})
        {after}
"""
SAVING = "torch.save(state, file)"


@pytest.mark.parametrize(
    ("saving", "before", "after"),
    [
        (SAVING, "save(epoch)", ""),
        (
            "import pickle; file.open('wb').write(b'') or torch.save(state, file.open('wb'))",
            "",
            "save(epoch)",
        ),
    ],
    ids=["before a report", "into an open file"],
)
def test_resumed_checkpoints_are_identical(saving: str, before: str, after: str, tmp_path: Path) -> None:
    """Shuffling and dropout use PyTorch's global generator, whose state the code does not store."""
    (tmp_path / "glue.py").write_text(
        GLUE.replace("{{", "{")
        .replace("}}", "}")
        .replace("{saving}", saving)
        .replace("{before}", before)
        .replace("{after}", after)
    )
    trainable_contract("glue:train")().test_trial_stopped_at_every_report_ends_like_an_uninterrupted_one(
        {}, tmp_path
    )
