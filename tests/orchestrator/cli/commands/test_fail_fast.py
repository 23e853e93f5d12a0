"""Early detection of mistakes: in the first report of a trial, or before a command writes files."""

import json
import re

import pytest

from orchestrator import read
from tests.support.training_code.own_code import forgotten

INLINE = ("--driver", "inline")
SPEC = """
name: early
question: Which x?
trainable: early:train
baseline: {x: 0.5, y: 0.0}
arms: {high: {why: more, set: {y: 1.0}}}
search:
  also: {x: {float: [0, 1]}}
  trials_per_arm: 4
  objectives: [{metric: valid/acc, goal: max}]
"""
CODE = """
def train(settings, trial):
    for step in (1, 2, 3):
        trial.report(step, REPORTED)
"""


@pytest.fixture
def run(haltsweep, untracked, tmp_path):
    """Return a function that runs a command on a training function which reports `reported`."""

    def run_command(reported, *arguments, confirm=""):
        (tmp_path / "early.yaml").write_text(SPEC + confirm)
        (tmp_path / "early.py").write_text("import math\nimport time\n" + CODE.replace("REPORTED", reported))
        with forgotten(tmp_path):
            return haltsweep(*arguments)

    return run_command


def test_first_report_without_an_objective_ends_the_trial_with_a_suggestion(run):
    result = run('{"valid/accuracy": settings["x"]}', "launch", "early.yaml", *INLINE)
    assert result.code == 1
    rows = read.trials("early").to_pylist()
    assert {(row["outcome"], row["step"]) for row in rows} == {("crashed", 1)}
    assert len(rows) < 8, "the sweep stops"
    assert "'valid/accuracy'" in rows[0]["reason"]


def test_diverged_search_trials_leave_the_exit_code_at_0(run):
    metrics = '{"valid/acc": settings["x"] if settings["x"] < 0.6 else math.nan, "test/acc": 1.0}'
    confirm = "confirm: {seeds: [1, 2], splits: [test]}\n"
    result = run(metrics, "launch", "early.yaml", *INLINE, confirm=confirm)
    outcomes = [row["outcome"] for row in read.trials("early").to_pylist()]
    assert (result.code, "diverged" in outcomes) == (0, True)
    assert "haltsweep status early" in result.err


def test_only_objectives_and_primary_metrics_must_be_finite(run, tmp_path):
    metrics = (
        '{"valid/acc": settings["x"], "train/grad_norm": math.inf if step < 3 else 1.0, '
        '"test/acc": settings["y"] + trial.seed / 100, "test/odd": math.nan if trial.seed == 1 else 2.0, '
        '"run/git": "abc", "run/note": None}'
    )
    confirm = "confirm: {seeds: [1, 2, 3], splits: [test]}\nanswer: {metric: test/acc}\n"
    result = run(metrics, "launch", "early.yaml", *INLINE, confirm=confirm)
    assert result.code == 0, result
    report = json.loads((tmp_path / "runs/early/report/report.json").read_text())
    (odd_cell,) = (
        cell for cell in report["cells"] if (cell["arm"], cell["metric"]) == ("baseline", "test/odd")
    )
    assert odd_cell["estimate"]["n"] == 2
    assert report["not_finite"] == {"test/odd": 2}
    assert {row["attribute.run/git"] for row in read.trials("early").to_pylist()} == {"abc"}
    assert run(metrics, "verify", "early", confirm=confirm).code == 0
    assert run(metrics, "bundle", "early", confirm=confirm).code == 0
    (bundle,) = tmp_path.glob("early*.zip")
    assert run(metrics, "verify", bundle.name, "--rerun", "6", confirm=confirm).code == 0


@pytest.mark.parametrize("metric", ["train/loss", "test/acc"])
def test_infinite_training_loss_or_primary_metric_ends_the_trial(run, metric):
    metrics = f'{{"valid/acc": 0.5, "test/acc": 0.5, "{metric}": math.inf}}'
    confirm = "confirm: {seeds: [1, 2], splits: [test]}\nanswer: {metric: test/acc}\n"
    run(metrics, "launch", "early.yaml", *INLINE, confirm=confirm)
    assert {row["outcome"] for row in read.trials("early").to_pylist() if row["step"]} == {"diverged"}


COMMANDS = [("check", "--run", "early.yaml"), ("launch", "--smoke", "early.yaml", *INLINE)]


@pytest.mark.parametrize(
    ("arguments", "reported", "expected"),
    [
        (COMMANDS[0], '{"valid/accuracy": 1.0}', "valid/accuracy"),
        (COMMANDS[1], '{"valid/acc": 1.0 / settings["y"]}', "ZeroDivisionError"),
        (COMMANDS[0], '{"valid/acc": math.nan}', "diverged"),
        (COMMANDS[0], '{"valid/acc": str(settings["x"])}', "'0.5'"),
        (COMMANDS[0], 'exit(print("no flag --z", flush=True) or 2)', "no flag --z"),
    ],
)
def test_smoke_test_reports_every_arm_and_writes_no_file(run, tmp_path, arguments, reported, expected):
    result = run(reported, *arguments)
    assert result.code == 2
    assert expected in result.err
    assert ("high: ok" in result.out) == (expected == "ZeroDivisionError")
    assert not (tmp_path / "runs").exists()


def test_smoke_test_names_unread_settings(run):
    note = r"high: ok; .*\by\b"
    assert re.search(note, run('{"valid/acc": 0.5, "seconds": time.perf_counter()}', *COMMANDS[0]).out)
    assert not re.search(note, run('{"valid/acc": settings["x"] + settings["y"]}', *COMMANDS[0]).out)


def test_smoke_test_names_missing_objectives(run):
    output = run('{"valid/acc": None}', *COMMANDS[0]).out
    assert re.findall(r"(\w+): ok; .*valid/acc", output) == ["baseline", "high"]


def test_smoke_tests_of_all_specs_run(run):
    result = run('{"valid/accuracy": 1.0}', *COMMANDS[0], "early.yaml")
    assert (result.code, len(re.findall("^early: .*valid/acc", result.err, re.MULTILINE))) == (2, 2)


def test_smoke_test_warns_once_about_search_trials_that_evaluate_test_data(run):
    metrics = '{"valid/acc": settings["x"] + settings["y"], "test_acc": 0.5}'
    result = run(metrics, *COMMANDS[1])
    assert result.code == 0
    assert len([line for line in result.err.splitlines() if "warning" in line and "test_acc" in line]) == 1


CONFIRM = "confirm: {seeds: [1, 2, 3], splits: [test]}\nanswer: {metric: test/acc}\n"


@pytest.mark.parametrize(
    ("last_report", "code", "expected"),
    [
        ('trial.report(4, {"test/acc": 0.5})', 0, ""),
        ('trial.report(3, {"test/acc": 0.5})', 2, "step 4"),
        ('trial.report(4, {"valid/acc": 0.5})', 2, "test/acc"),
        ('trial.report(4, {"test/acc": math.nan})', 2, "diverged"),
    ],
)
def test_smoke_test_runs_a_confirm_trial_to_its_test_metrics(run, last_report, code, expected):
    reported = (
        f'{{"valid/acc": settings["x"] + settings["y"]}})\n    if trial.splits:\n        ({last_report}'
    )
    result = run(reported, *COMMANDS[0], confirm=CONFIRM)
    assert (result.code, expected in result.err) == (code, True), result.err


def test_sweep_stops_when_the_first_confirm_trials_crash_alike(run):
    reported = '{"valid/acc": settings["x"]} if not trial.splits else 1 / 0'
    result = run(reported, "launch", "early.yaml", *INLINE, confirm=CONFIRM)
    rows = [row for row in read.trials("early").to_pylist() if row["phase"] == "confirm"]
    assert result.code == 1
    assert 3 <= len(rows) < 6
    assert "--retry failed" in result.err
