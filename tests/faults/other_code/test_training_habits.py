"""Scripts with common habits measure the right values in two trials at a time."""

import shutil
from pathlib import Path

import pytest

from orchestrator.read import trials
from tests.support.processes.commands import Shell
from tests.support.training_code import habits
from tests.support.training_code.habit_specs import habits_spec

pytestmark = pytest.mark.slow
SEEDS = (1, 2)
LEVELS = {"high": 0.8, "low": 0.2}


def make_spec():
    """Make a spec with an arm for each habit and level."""
    high = {"high": LEVELS["high"]}
    levels = {habit: high if value in habits.CONSTANTS else LEVELS for habit, value in habits.HABITS.items()}
    return habits_spec(levels, SEEDS)


def trial_results(shell):
    """Return outcome, measurement and reason of each trial, by arm and seed."""
    rows = trials("habits", runs=shell.folder / "runs").to_pylist()
    return {
        (row["arm"], row["seed"]): (row["outcome"], row["metric.test/x"], row["reason"])
        for row in rows
        if row["arm"] != "baseline"
    }


@pytest.fixture(scope="module")
def finished_sweep(tmp_path_factory):
    """Run a sweep in a folder in which a script ran before."""
    shell = Shell.at(tmp_path_factory.mktemp("habits"), make_spec())
    shutil.copy(habits.__file__, shell.folder / "job.py")
    (shell.folder / "results").mkdir()
    (shell.folder.parent / "outputs").mkdir()
    cpus = ["--cpus", "0.5"]  # for each trial, so that every machine has two slots
    answer = shell.run("launch", "tiny.yaml", *cpus)
    return shell, answer


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
question: Are two writers of one file detected?
trainable: writers:train
baseline: {first: true}
arms: {second: {why: the other writer, set: {first: false}}}
confirm: {seeds: [1], splits: [test]}
resources: {working_folder: shared}
on_error: continue
"""


def test_two_trials_cannot_write_one_file_of_a_shared_working_folder(tmp_path):
    shell = Shell.at(tmp_path, TWO_WRITERS_SPEC)
    (shell.folder / "writers.py").write_text(TWO_WRITERS)
    answer = shell.run("launch", "tiny.yaml", "--driver", "ray", "--cpus", "0.5")
    assert answer.code == 1, answer
    rows = trials("writers", runs=shell.folder / "runs").to_pylist()
    by_outcome = {row["outcome"]: row for row in rows}
    assert by_outcome.keys() == {"finished", "crashed"}
    assert by_outcome["finished"]["metric.test/x"] == 1.0
    assert "best.txt" in by_outcome["crashed"]["reason"]


def test_every_habit_measures_the_same_as_alone(finished_sweep):
    shell, _ = finished_sweep
    results = trial_results(shell)
    wrong = {
        key: result
        for key, result in results.items()
        if result[0] != "finished" or not _is_right(*key, result[1])
    }
    assert wrong == {}
    assert len(results) == len(SEEDS) * (len(habits.HABITS) + len(habits.HABITS) - len(habits.CONSTANTS))


def _is_right(arm, seed, value):
    habit, name = arm.rsplit("-", 1)
    expected = habits.expected(habit, LEVELS[name], seed)
    return expected is None or value == pytest.approx(expected, abs=1e-3)


def test_generators_start_from_the_seed_of_each_trial(finished_sweep):
    shell, _ = finished_sweep
    drawn = {seed: trial_results(shell)["seeded_once-high", seed][1] for seed in SEEDS}
    assert len(set(drawn.values())) == len(SEEDS)
    assert drawn == {seed: trial_results(shell)["seeded_once-low", seed][1] for seed in SEEDS}


def test_trials_leave_no_files_in_the_launch_folder(finished_sweep):
    shell, _ = finished_sweep
    leftovers = {path.name for path in Path(shell.folder).iterdir()} - {"__pycache__"}
    assert leftovers == {"job.py", "results", "runs", "tiny.yaml"}
    assert not any((shell.folder / "results").iterdir())
    assert not any((shell.folder.parent / "outputs").iterdir())
    assert not (shell.folder / "runs" / "habits" / "scratch").exists()
