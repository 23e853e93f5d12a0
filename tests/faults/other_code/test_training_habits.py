"""Habits of public training scripts give the right numbers, with two trials at a time."""

import shutil
from pathlib import Path

import pytest

from orchestrator.read import trials
from tests.support.processes.commands import Shell
from tests.support.training_code import habits
from tests.support.training_code.habit_specs import habits_spec

pytestmark = pytest.mark.slow
SEEDS = (1, 2, 3)
LEVELS = {"high": 0.8, "low": 0.2}


def spec():
    """An arm for each habit and level."""
    high = {"high": LEVELS["high"]}
    levels = {habit: high if value in habits.CONSTANTS else LEVELS for habit, value in habits.HABITS.items()}
    return habits_spec(levels, SEEDS)


def measured(shell):
    """What each trial ended as and measured, by habit, level and seed."""
    rows = trials("habits", runs=shell.folder / "runs").to_pylist()
    return {
        (row["arm"], row["seed"]): (row["outcome"], row["metric.test/x"], row["reason"])
        for row in rows
        if row["arm"] != "baseline"
    }


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A sweep in a folder where a script has run before."""
    shell = Shell.at(tmp_path_factory.mktemp("habits"), spec())
    shutil.copy(habits.__file__, shell.folder / "job.py")
    (shell.folder / "results").mkdir()
    (shell.folder.parent / "outputs").mkdir()
    cpus = ["--cpus", "0.5"]  # of a trial, so that there are two slots everywhere
    shown = shell.run("launch", "tiny.yaml", *cpus)
    return shell, shown


TWO_WRITERS = """
import time
from pathlib import Path

def wait_for(name):
    until = time.monotonic() + 20
    while not Path(name).exists() and time.monotonic() < until:
        time.sleep(0.01)

def train(settings, trial):
    me, other = ("one", "two") if settings["first"] else ("two", "one")
    Path(f"at-{me}").touch()
    wait_for(f"at-{other}")
    try:
        Path("best.txt").write_text(me)
    except BaseException:
        Path("refused").touch()
        raise
    wait_for("refused")
    trial.report(1, {"test/x": float(Path("best.txt").read_text() == me)})
"""
TWO_WRITERS_SPEC = """
name: writers
question: Are two writers of one file told apart?
trainable: writers:train
baseline: {first: true}
arms: {second: {why: the other writer, set: {first: false}}}
confirm: {seeds: [1], splits: [test]}
resources: {working_folder: shared}
on_error: continue
"""


def test_in_a_shared_working_folder_two_trials_cannot_write_one_file_at_once(tmp_path):
    shell = Shell.at(tmp_path, TWO_WRITERS_SPEC)
    (shell.folder / "writers.py").write_text(TWO_WRITERS)
    shown = shell.run("launch", "tiny.yaml", "--driver", "ray", "--cpus", "0.5")
    assert shown.code == 1, shown
    rows = trials("writers", runs=shell.folder / "runs").to_pylist()
    by_outcome = {row["outcome"]: row for row in rows}
    assert by_outcome.keys() == {"finished", "crashed"}
    assert by_outcome["finished"]["metric.test/x"] == 1.0
    assert "best.txt must be written by one trial at a time" in by_outcome["crashed"]["reason"]


def test_every_habit_measures_what_it_measures_alone(ran):
    shell, _ = ran
    found = measured(shell)
    wrong = {
        key: each for key, each in found.items() if each[0] != "finished" or not _is_right(*key, each[1])
    }
    assert wrong == {}
    assert len(found) == len(SEEDS) * (len(habits.HABITS) + len(habits.HABITS) - len(habits.CONSTANTS))


def _is_right(arm, seed, value):
    habit, name = arm.rsplit("-", 1)
    expected = habits.expected(habit, LEVELS[name], seed)
    return expected is None or value == pytest.approx(expected, abs=1e-3)


def test_generators_start_from_the_seed_of_each_trial(ran):
    shell, _ = ran
    drawn = {seed: measured(shell)["seeded_once-high", seed][1] for seed in SEEDS}
    assert len(set(drawn.values())) == len(SEEDS)
    assert drawn == {seed: measured(shell)["seeded_once-low", seed][1] for seed in SEEDS}


def test_nothing_is_left_in_the_launch_folder(ran):
    shell, _ = ran
    left = {each.name for each in Path(shell.folder).iterdir()} - {"__pycache__"}
    assert left == {"job.py", "results", "runs", "tiny.yaml"}
    assert not any((shell.folder / "results").iterdir())
    assert not any((shell.folder.parent / "outputs").iterdir())
    assert not (shell.folder / "runs" / "habits" / "scratch").exists()
