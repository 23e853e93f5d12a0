"""A training function as a workload reports, saves, resumes and ends."""

import multiprocessing
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.execution.checkpoints.worker_checkpoints import write
from orchestrator.files.abandoned_folders import clear_abandoned
from trainables.custom.function import FunctionWorkload
from trainables.process_identity import origin
from trainables.protocol import TRIALS, Job, Measurement

SETTINGS = {"steps": 5}


def train_with_checkpoint(settings, trial):
    """Store the step before every report, and continue from a stored step."""
    saved = trial.folder / "step.txt"
    first_workload = int(saved.read_text()) + 1 if saved.exists() else 1
    for step in range(first_workload, settings["steps"] + 1):
        saved.write_text(str(step))
        trial.report(step, {"valid/score": trial.generator("noise", step).random()})


def train_without_checkpoint(settings, trial):
    """Store nothing."""
    for step in range(1, settings["steps"] + 1):
        trial.report(step, {"valid/score": trial.generator("noise", step).random()})


def run(workload: FunctionWorkload) -> list[Measurement]:
    measurements = []
    while (measurement := workload.advance()) is not None:
        assert not workload.finished
        measurements.append(measurement)
    assert workload.finished
    return measurements


def step_metrics(measurements: list[Measurement]) -> list[tuple[int, dict[str, float]]]:
    return [(measurement.step, dict(measurement.metrics)) for measurement in measurements]


@pytest.mark.parametrize("train", [train_with_checkpoint, train_without_checkpoint])
@pytest.mark.parametrize("steps_before", [1, 5])
def test_resumed_function_reports_each_step_once(train, steps_before: int, tmp_path: Path) -> None:
    uninterrupted = run(FunctionWorkload(train, Job(SETTINGS, seed=7)))
    assert [measurement.step for measurement in uninterrupted] == [1, 2, 3, 4, 5]
    first_workload = FunctionWorkload(train, Job(SETTINGS, seed=7))
    reports_before = [first_workload.advance() for _ in range(steps_before)]
    first_workload.save(tmp_path)
    first_workload.close()
    resumed_workload = FunctionWorkload(train, Job(SETTINGS, seed=7))
    resumed_workload.restore(tmp_path)
    reports_after = run(resumed_workload)
    assert step_metrics(reports_before) + step_metrics(reports_after) == step_metrics(uninterrupted)
    assert all(measurement.seconds >= reports_before[-1].seconds for measurement in reports_after)


def test_checkpoint_stores_a_link_as_a_link(tmp_path: Path) -> None:
    """A link may point to large data or to its own folder."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "large").write_text("gigabytes")
    links_by_run = []

    def train(settings, trial):
        links_by_run.append({path.name: path.is_symlink() for path in trial.folder.iterdir()})
        if not links_by_run[-1]:
            (trial.folder / "data").symlink_to(tmp_path / "data")
            (trial.folder / "loop").symlink_to(".")
            (trial.folder / "best").write_text("weights")
            (trial.folder / "newest").symlink_to(trial.folder / "best")
        trial.report(1, {"valid/score": 0.0})
        trial.report(2, {"valid/score": 0.0})

    first_workload = FunctionWorkload(train, Job(SETTINGS, seed=0))
    first_workload.advance()
    (tmp_path / "trial").mkdir()
    checkpoint = write(tmp_path / "trial", first_workload._last_report, first_workload.save)
    first_workload.close()
    resumed_workload = FunctionWorkload(train, Job(SETTINGS, seed=0))
    resumed_workload.restore(checkpoint.state)
    assert resumed_workload.advance().step == 2
    resumed_workload.close()
    assert links_by_run[1] == {"data": True, "loop": True, "best": False, "newest": False}
    assert (tmp_path / "data" / "large").exists()


def test_function_changes_only_its_copy_of_the_settings() -> None:
    def train(settings, trial):
        settings["inner"]["width"] = 0
        trial.report(1, {"valid/score": 0.0})

    settings = {"inner": {"width": 3}}
    with closing(FunctionWorkload(train, Job(settings, seed=0))) as workload:
        workload.advance()
    assert settings == {"inner": {"width": 3}}


def test_folder_of_a_killed_trial_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    killed_folder = tmp_path / f"{TRIALS}999999999-{origin()}aa-abc"
    killed_folder.mkdir()
    running_workload = FunctionWorkload(train_with_checkpoint, Job(SETTINGS, seed=0))
    running_workload.advance()
    clear_abandoned()
    assert [path.name.startswith(f"{TRIALS}{os.getpid()}-") for path in tmp_path.iterdir()] == [True]
    running_workload.close()
    assert not list(tmp_path.iterdir())


def test_named_seeds_depend_only_on_seed_and_name() -> None:
    seeds_by_arm = {}

    def train(settings, trial):
        seeds_by_arm[settings["arm"]] = (trial.seed_of("weights"), trial.seed_of("data", 1), trial.seed)
        trial.report(1, {"valid/score": 0.0})

    for arm, seed in {"one": 3, "other": 3, "elsewhere": 4}.items():
        with closing(FunctionWorkload(train, Job({"arm": arm}, seed=seed))) as workload:
            workload.advance()
    assert seeds_by_arm["one"] == seeds_by_arm["other"] != seeds_by_arm["elsewhere"]
    assert len(set(seeds_by_arm["one"])) == 3
    assert all(0 <= seed < 2**32 for seed in seeds_by_arm["one"])


def test_exit_without_an_error_ends_the_trial() -> None:
    """Scripts for the command line often end by `sys.exit`."""

    def train(settings, trial):
        trial.report(1, {"valid/score": 0.5})
        sys.exit(0)

    assert step_metrics(run(FunctionWorkload(train, Job(SETTINGS, seed=0)))) == [(1, {"valid/score": 0.5})]


def report_in_a_thread(settings, trial):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(trial.report, 2, {"valid/score": 0.0})


def report_in_a_process(settings, trial):
    process = multiprocessing.get_context("fork").Process(target=trial.report, args=(2, {"valid/score": 0.0}))
    process.start()
    process.join()
    trial.report(3, {"valid/score": 1.0})


@pytest.mark.parametrize(
    ("train", "error"),
    [
        (lambda settings, trial: int("x"), ValueError),
        (lambda settings, trial: sys.exit("no data"), SystemExit),
        (lambda settings, trial: None, ValueError),
        (lambda settings, trial: trial.report(0.5, 3), TypeError),
        (report_in_a_thread, RuntimeError),
        (report_in_a_process, RuntimeError),
    ],
    ids=["exception", "exit", "no report", "wrong arguments", "error of a thread", "error of a process"],
)
def test_failed_function_raises_an_error(train, error: type[BaseException]) -> None:
    with closing(FunctionWorkload(train, Job(SETTINGS, seed=0))) as workload, pytest.raises(error):
        workload.advance()
