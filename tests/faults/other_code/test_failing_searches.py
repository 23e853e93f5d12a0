"""A custom sampler that fails during a sweep causes one error message, and `resume` continues."""

import re

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
  sampler: theirs.Breaks
  trials_per_arm: 24
  objectives: [{metric: valid/score, goal: max}]
"""
CODE = """
from pathlib import Path

from optuna.samplers import RandomSampler


def train(settings, trial):
    trial.report(1, {"valid/score": settings["lr"]})


LATE = 22  # later than the planner tries a sampler


class Breaks(RandomSampler):
    def sample_independent(self, study, trial, name, distribution):
        if len(study.trials) > LATE and not Path("corrected").exists():
            raise KeyError("a slip")
        return super().sample_independent(study, trial, name, distribution)
"""


def test_error_of_a_custom_sampler_explains_how_to_resume(tmp_path, haltsweep):
    with forgotten(tmp_path):
        (tmp_path / "theirs.py").write_text(CODE)
        (tmp_path / "spec.yaml").write_text(SPEC)
        answer = haltsweep("launch", "spec.yaml", "--driver", "inline")
        assert answer.code == 2
        assert re.search(r"theirs\.Breaks .* 22 ", answer.err)
        assert answer.err.strip().endswith("`haltsweep resume searched`")
        assert "Traceback" not in answer.err
        (tmp_path / "corrected").touch()
        resume_result = haltsweep("resume", "searched", "--driver", "inline")
        assert resume_result.code == 0, resume_result
        assert "24 finished" in resume_result.out
