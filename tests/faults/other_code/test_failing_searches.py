"""A custom sampler or stopper that fails during a sweep causes one error message, and `resume` continues."""

import sys

import pytest

from tests.support.training_code.own_code import forgotten

pytestmark = pytest.mark.usefixtures("untracked")

SPEC = """
name: searched
question: Does it go on?
trainable: theirs:train
baseline: {lr: 0.5}
search:
  also: {lr: {float: [0.0, 1.0]}}
  sampler: %s
  stopper: %s
  trials_per_arm: 24
  objectives: [{metric: valid/score, goal: max}]
"""
CODE = """
from pathlib import Path

from optuna.pruners import BasePruner
from optuna.samplers import RandomSampler


def train(settings, trial):
    for step in (1, 2):
        trial.report(step, {"valid/score": settings["lr"]})


LATE = 22  # later than the planner tries a sampler


class Breaks(RandomSampler):
    def sample_independent(self, study, trial, name, distribution):
        if len(study.trials) > LATE and not Path("corrected").exists():
            raise KeyError("a slip")
        return super().sample_independent(study, trial, name, distribution)


class Leaves(RandomSampler):
    def sample_independent(self, study, trial, name, distribution):
        drawn = super().sample_independent(study, trial, name, distribution)
        return 7.0 if len(study.trials) > LATE and not Path("corrected").exists() else drawn


class Judges(BasePruner):
    def prune(self, study, trial):
        if len(study.trials) > LATE and not Path("corrected").exists():
            raise SystemExit(3)
        return False
"""


@pytest.mark.parametrize(
    ("sampler", "stopper", "expected"),
    [
        ("theirs.Breaks", "null", "sampler theirs.Breaks failed at search trial 22 "),
        ("theirs.Leaves", "null", "lr from 0.0 to 1.0, got 7.0"),
        ("random", "{name: theirs.Judges}", "stopper theirs.Judges failed at search trial 22 "),
    ],
)
def test_error_of_a_custom_search_explains_how_to_resume(tmp_path, haltsweep, sampler, stopper, expected):
    with forgotten(tmp_path):
        (tmp_path / "theirs.py").write_text(CODE)
        (tmp_path / "spec.yaml").write_text(SPEC % (sampler, stopper))
        answer = haltsweep("launch", "spec.yaml", "--driver", "inline")
        assert answer.code == 2
        assert expected in answer.err
        assert answer.err.strip().endswith("`haltsweep resume searched`")
        assert "Traceback" not in answer.err
        assert "theirs" in sys.modules
        (tmp_path / "corrected").touch()
        resume_result = haltsweep("resume", "searched", "--driver", "inline")
        assert resume_result.code == 0, resume_result
        assert "24 finished" in resume_result.out


def test_search_ends_after_every_combination(tmp_path, haltsweep):
    with forgotten(tmp_path):
        (tmp_path / "theirs.py").write_text(CODE)
        small_spec = SPEC.replace("float: [0.0, 1.0]", "choice: [0.1, 0.2, 0.3]") % ("bruteforce", "null")
        (tmp_path / "spec.yaml").write_text(small_spec)
        plan_answer = haltsweep("plan", "spec.yaml")
        assert "fewer than 24: baseline 3." in " ".join(plan_answer.out.split())
        answer = haltsweep("launch", "spec.yaml", "--driver", "inline")
        assert answer.code == 0, answer
        assert "3 finished" in answer.out
