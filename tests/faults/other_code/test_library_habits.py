"""Scripts with Hugging Face, Lightning, MLflow, Hydra and Accelerate run in two trials at a time."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from orchestrator.read import trials
from tests.support.processes.commands import Shell
from tests.support.training_code.habit_specs import habits_spec

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(find_spec, ("accelerate", "hydra", "lightning", "transformers"))),
        reason="needs the extra `dev`",
    ),
]
SCRIPT = Path(__file__).parents[2] / "support" / "training_code" / "library_habits.py"
HABITS = (
    "hugging_face",
    "lightning",
    "open_run",
    "log_without_a_run",
    "compose_with_hydra",
    "train_with_accelerate",
    "distributed",
)
LEVELS = {"high": 0.8, "low": 0.2}
SEEDS = (1,)
"""One seed: the levels already distinguish the trials of a habit that run at the same time."""


def test_every_library_script_measures_the_same_as_alone(tmp_path):
    # MLflow and Hydra fail in folders with quotes or equals signs in their names.
    shell = Shell(tmp_path / "work", tmp_path / "home")
    shell.folder.mkdir()
    shell.home.mkdir()
    spec = habits_spec(dict.fromkeys(HABITS, LEVELS), SEEDS)
    (shell.folder / "tiny.yaml").write_text(spec, encoding="utf-8")
    shutil.copy(SCRIPT, shell.folder / "job.py")
    answer = shell.run("launch", "tiny.yaml", "--cpus", "1")
    rows = trials("habits", runs=shell.folder / "runs").to_pylist()
    measured = {
        (row["arm"], row["seed"]): row["metric.test/x"] if row["outcome"] == "finished" else row["reason"]
        for row in rows
        if row["arm"] != "baseline"
    }
    expected = {
        (f"{habit}-{name}", seed): pytest.approx(level + seed / 100, abs=1e-6)
        for habit in HABITS
        for name, level in LEVELS.items()
        for seed in SEEDS
    }
    assert measured == expected, answer.err
    leftovers = {path.name for path in shell.folder.iterdir()} - {"__pycache__"}
    assert leftovers == {"job.py", "runs", "tiny.yaml"}
