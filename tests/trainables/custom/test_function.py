"""A training function as a workload reports, saves, resumes and ends."""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from multiprocessing import get_context
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
    first = int(saved.read_text()) + 1 if saved.exists() else 1
    for step in range(first, settings["steps"] + 1):
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


def reported(measurements: list[Measurement]) -> list[tuple[int, dict[str, float]]]:
    return [(measurement.step, dict(measurement.metrics)) for measurement in measurements]


@pytest.mark.parametrize("train", [train_with_checkpoint, train_without_checkpoint])
@pytest.mark.parametrize("steps_before", [1, 3, 5])
def test_resumed_function_reports_each_step_once(train, steps_before: int, tmp_path: Path) -> None:
    uninterrupted = run(FunctionWorkload(train, Job(SETTINGS, seed=7)))
    assert [measurement.step for measurement in uninterrupted] == [1, 2, 3, 4, 5]
    first = FunctionWorkload(train, Job(SETTINGS, seed=7))
    before = [first.advance() for _ in range(steps_before)]
    first.save(tmp_path)
    first.close()
    resumed = FunctionWorkload(train, Job(SETTINGS, seed=7))
    resumed.restore(tmp_path)
    after = run(resumed)
    assert reported(before) + reported(after) == reported(uninterrupted)
    assert all(measurement.seconds >= before[-1].seconds for measurement in after)


def test_checkpoint_excludes_files_written_after_the_report(tmp_path: Path) -> None:
    def train(settings, trial):
        trial.report(1, {"valid/score": 0.0})
        (trial.folder / "late.txt").write_text("after the report")
        trial.report(2, {"valid/score": 0.0})

    with closing(FunctionWorkload(train, Job(SETTINGS, seed=0))) as workload:
        workload.advance()
        workload.save(tmp_path)
    assert not list(tmp_path.rglob("late.txt"))


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

    first = FunctionWorkload(train, Job(SETTINGS, seed=0))
    first.advance()
    (tmp_path / "trial").mkdir()
    checkpoint = write(tmp_path / "trial", first._last_report, first.save)
    first.close()
    resumed = FunctionWorkload(train, Job(SETTINGS, seed=0))
    resumed.restore(checkpoint.state)
    assert resumed.advance().step == 2
    resumed.close()
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
    killed = tmp_path / f"{TRIALS}999999999-{origin()}aa-abc"
    killed.mkdir()
    running = FunctionWorkload(train_with_checkpoint, Job(SETTINGS, seed=0))
    running.advance()
    clear_abandoned()
    assert [path.name.startswith(f"{TRIALS}{os.getpid()}-") for path in tmp_path.iterdir()] == [True]
    running.close()
    assert not list(tmp_path.iterdir())


def test_advance_raises_the_exception_of_the_function() -> None:
    def train(settings, trial):
        trial.report(1, {"valid/score": 0.0})
        raise RuntimeError("no more")

    workload = FunctionWorkload(train, Job(SETTINGS, seed=0))
    workload.advance()
    with pytest.raises(RuntimeError, match="no more"):
        workload.advance()
    workload.close()


@pytest.mark.parametrize("code", [(), (0,), (None,)])
def test_exit_without_an_error_ends_the_trial(code: tuple[object, ...]) -> None:
    """Scripts for the command line often end by `sys.exit`."""

    def train(settings, trial):
        trial.report(1, {"valid/score": 0.5})
        sys.exit(*code)

    assert reported(run(FunctionWorkload(train, Job(SETTINGS, seed=0)))) == [(1, {"valid/score": 0.5})]


@pytest.mark.parametrize("code", [1, "no data"])
def test_exit_with_an_error_fails_the_trial(code: object) -> None:
    def train(settings, trial):
        trial.report(1, {"valid/score": 0.5})
        sys.exit(code)

    workload = FunctionWorkload(train, Job(SETTINGS, seed=0))
    workload.advance()
    with pytest.raises(SystemExit):
        workload.advance()


def test_function_without_a_report_raises_an_error() -> None:
    with pytest.raises(ValueError, match="report"):
        FunctionWorkload(lambda settings, trial: None, Job(SETTINGS, seed=0)).advance()
    with pytest.raises(ValueError, match=" int: "):
        FunctionWorkload(lambda settings, trial: 3, Job(SETTINGS, seed=0)).advance()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (({"valid/score": 0.5},), r"\{\'valid/score\': 0.5\}"),
        (({"valid/score": 0.5}, 3), "step"),
        ((0.5, 3), r"3 after 0\.5.*trial\.report\(step, "),
        ((3, 0.5), "0.5 after 3"),
    ],
)
def test_wrong_report_arguments_raise_an_error(arguments: tuple[object, ...], expected: str) -> None:
    workload = FunctionWorkload(lambda settings, trial: trial.report(*arguments), Job(SETTINGS, seed=0))
    with pytest.raises(TypeError, match=expected):
        workload.advance()


@pytest.mark.parametrize("is_ignored", [False, True])
def test_report_in_another_thread_fails_the_trial_even_if_ignored(is_ignored: bool) -> None:
    def report_in_thread(trial, step):
        with pytest.raises(RuntimeError) if is_ignored else nullcontext():
            trial.report(step, {"valid/score": 0.0})

    def train(settings, trial):
        trial.report(1, {"valid/score": 0.0})
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(report_in_thread, trial, 2)
        if not is_ignored:
            future.result()
        trial.report(3, {"valid/score": 0.0})

    workload = FunctionWorkload(train, Job(SETTINGS, seed=0))
    workload.advance()
    with pytest.raises(RuntimeError):
        workload.advance()
    workload.close()


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


def test_report_in_a_forked_process_raises_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    def train(settings, trial):
        child = get_context("fork").Process(target=trial.report, args=(1, {"valid/score": 0.0}))
        child.start()
        child.join()
        trial.report(2, {"valid/score": float(child.exitcode)})

    with closing(FunctionWorkload(train, Job(SETTINGS, seed=0))) as workload:
        measurement = workload.advance()
    assert measurement.metrics == {"valid/score": 1.0}
    assert "RuntimeError" in capfd.readouterr().err
