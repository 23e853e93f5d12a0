"""What building the models of own code shows, and what it does not."""

import random

import numpy as np
import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.display.render import plan_warnings
from orchestrator.plan.planner import plan_file
from tests.support.training_code.own_code import forgotten

SPEC = """
name: mine
question: Does it need its dropout?
trainable: mine:train
baseline: {width: 6, dropout: 0.5, lr: 0.3, off: false, note: a}
arms:
  minus-dropout: {why: nothing is dropped, set: {dropout: 0.0}}
  OTHER
confirm: {seeds: [1, 2, 3]}
"""
HEAD = """
import os
import random
from dataclasses import dataclass
import numpy as np
import torch
from torch import nn

def train(settings, trial):
    pass

def example(settings):
    return torch.randn(3, 4)

"""
PLAIN = """
def build(settings):
    drop = [] if settings["off"] else [nn.Dropout(settings["dropout"])]
    return nn.Sequential(nn.Linear(4, settings["width"]), *drop, nn.Linear(settings["width"], 2))
"""
OPTS_IN = '\nhaltsweep = {"build": build, "example": example}\n'
NOTE = "note: {why: nothing reads it, set: {note: b}}"


@pytest.fixture
def planned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with forgotten(tmp_path):

        def made(code=PLAIN, other=NOTE):
            (tmp_path / "mine.py").write_text(HEAD + code + OPTS_IN, encoding="utf-8")
            (tmp_path / "mine.yaml").write_text(SPEC.replace("OTHER", other), encoding="utf-8")
            return plan_file(tmp_path / "mine.yaml")[1]

        yield made


def evidence(plan):
    return {proof.arm: proof.evidence for proof in plan.proofs}


@pytest.mark.parametrize("draws", ["random.random()", "np.random.rand()"])
def test_what_build_draws_from_a_global_generator_tells_no_arms_apart(planned, draws):
    before = random.getstate(), np.random.get_state()[2]  # noqa: NPY002
    found = planned(f"""
class Scaled(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.scale = {draws}
    def forward(self, x):
        return super().forward(x) * self.scale

def build(settings):
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(settings["dropout"]), Scaled(4, 2))
""")
    assert evidence(found) == {"baseline": (), "minus-dropout": ("outputs", "gradient"), "note": ()}
    assert plan_warnings(found) == []
    assert (random.getstate(), np.random.get_state()[2]) == before  # noqa: NPY002


def test_a_model_that_is_another_each_time_proves_nothing(planned):
    found = planned(PLAIN.replace("drop = [", "torch.seed(); drop = ["))
    assert evidence(found) == {"baseline": (), "minus-dropout": (), "note": ()}
    [shown] = plan_warnings(found)
    assert shown.startswith("Warning: baseline: the model of build(settings), run on example(settings), comp")


def test_what_is_not_finite_differs_from_nothing_and_is_told_once(planned):
    found = planned(
        PLAIN.replace("return nn.Sequential(", "return nn.Sequential(nn.LayerNorm(4, eps=float('nan')), ")
    )
    assert evidence(found)["note"] == ()
    [shown] = plan_warnings(found)
    assert shown.startswith("Warning: baseline: the output of its model on example(settings)")


def test_lazy_modules_without_an_example_are_asked_for_one(planned):
    code = PLAIN.replace("nn.Linear(4, ", "nn.LazyLinear(") + "\nexample = None\n"
    with pytest.raises(PlanError, match=r"got 0\.weight without a shape: write example"):
        planned(code)


@pytest.mark.parametrize("kind", ["Out(y)", "torch.complex(y, y)", "{'classes': (9 * y).long()}"])
def test_all_that_a_model_returns_is_compared(planned, kind):
    found = planned(f"""
@dataclass
class Out:
    values: object

class Net(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.linear, self.drop = nn.Linear(4, 8), nn.Dropout(drop)
    def forward(self, x):
        y = self.drop(self.linear(x))
        return {kind}

def build(settings):
    return Net(settings["dropout"])
""")
    assert "outputs" in evidence(found)["minus-dropout"]
    assert evidence(found)["note"] == ()
