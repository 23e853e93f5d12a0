"""Scripts with common habits measure the right values in two trials at a time."""

import shutil

import pytest
import yaml

from orchestrator.read import trials
from tests.support.processes.commands import Shell
from tests.support.training_code import habits

SEEDS = (1, 2)
LEVELS = {"high": 0.8, "low": 0.2}


def make_spec():
    """Make a spec with an arm `HABIT-LEVEL` for each habit and level; constant habits have one level."""
    arms = {
        f"{habit}-{name}": {"why": "a habit", "set": {"habit": habit, "level": LEVELS[name]}}
        for habit, function in habits.HABITS.items()
        for name in (["high"] if function in habits.CONSTANTS else LEVELS)
    }
    return yaml.safe_dump(
        {
            "name": "habits",
            "question": "Does one trial affect another?",
            "trainable": "job:train",
            "baseline": {"habit": "none", "level": 0.5},
            "arms": arms,
            "confirm": {"seeds": [*SEEDS], "splits": ["test"]},
        },
        sort_keys=False,
    )


@pytest.mark.slow
def test_every_habit_measures_the_same_as_alone(tmp_path):
    """The folder of the launch has folders of a script that ran before, which trials must not touch."""
    shell = Shell.at(tmp_path, make_spec())
    shutil.copy(habits.__file__, shell.folder / "job.py")
    (shell.folder.parent / "outputs").mkdir()
    answer = shell.run("launch", "tiny.yaml", "--cpus", "0.5")  # so that every machine has two slots
    assert answer.code == 0, answer
    rows = trials("habits", runs=shell.folder / "runs").to_pylist()
    measured = {(row["arm"], row["seed"]): row["metric.test/x"] for row in rows if row["arm"] != "baseline"}
    assert {key: value for key, value in measured.items() if not _is_right(*key, value)} == {}
    for level in LEVELS:
        numbers_by_seed = {seed: measured[f"seeded_once-{level}", seed] for seed in SEEDS}
        assert len(set(numbers_by_seed.values())) == len(SEEDS)
        assert numbers_by_seed == {seed: measured["seeded_once-high", seed] for seed in SEEDS}
    leftovers = {path.name for path in shell.folder.iterdir()} - {"__pycache__"}
    assert leftovers == {"job.py", "runs", "tiny.yaml"}
    assert not any((shell.folder.parent / "outputs").iterdir())
    assert not (shell.folder / "runs" / "habits" / "scratch").exists()


def _is_right(arm, seed, value):
    habit, name = arm.rsplit("-", 1)
    expected = habits.expected(habit, LEVELS[name], seed)
    return expected is None or value == pytest.approx(expected, abs=1e-3)
