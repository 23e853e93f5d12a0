"""The ablation check builds and compares models of custom code."""

import random
import re

import numpy as np
import pytest

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
def plan_custom_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with forgotten(tmp_path):

        def make_plan(code=PLAIN, other=NOTE):
            (tmp_path / "mine.py").write_text(HEAD + code + OPTS_IN, encoding="utf-8")
            (tmp_path / "mine.yaml").write_text(SPEC.replace("OTHER", other), encoding="utf-8")
            return plan_file(tmp_path / "mine.yaml")[1]

        yield make_plan


def evidence(plan):
    return {proof.arm: proof.evidence for proof in plan.proofs}


def test_global_random_draws_in_build_do_not_distinguish_arms(plan_custom_code):
    states = random.getstate(), np.random.get_state()[2]  # noqa: NPY002
    sweep_plan = plan_custom_code("""
class Scaled(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.scale = random.random() + np.random.rand()
    def forward(self, x):
        return super().forward(x) * self.scale

def build(settings):
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(settings["dropout"]), Scaled(4, 2))
""")
    assert evidence(sweep_plan) == {"baseline": (), "minus-dropout": ("outputs", "gradient"), "note": ()}
    assert plan_warnings(sweep_plan) == []
    assert (random.getstate(), np.random.get_state()[2]) == states  # noqa: NPY002


def test_model_that_changes_at_every_build_proves_nothing(plan_custom_code):
    sweep_plan = plan_custom_code(PLAIN.replace("drop = [", "torch.seed(); drop = ["))
    assert evidence(sweep_plan) == {"baseline": (), "minus-dropout": (), "note": ()}
    [warning] = plan_warnings(sweep_plan)
    assert re.match(r"Warning: baseline: .*build\(settings\)", warning)


@pytest.mark.parametrize("kind", ["Out(y)", "{'classes': (9 * y).long()}"])
def test_all_outputs_of_a_model_are_compared(plan_custom_code, kind):
    sweep_plan = plan_custom_code(f"""
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
    assert "outputs" in evidence(sweep_plan)["minus-dropout"]
    assert evidence(sweep_plan)["note"] == ()
