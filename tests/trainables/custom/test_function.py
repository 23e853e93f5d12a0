"""A plain function as a workload: from report to report, saved, resumed, ended."""

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


def counting(settings, trial):
    """Saves how far it is before every report, and goes on from there."""
    saved = trial.folder / "step.txt"
    first = int(saved.read_text()) + 1 if saved.exists() else 1
    for step in range(first, settings["steps"] + 1):
        saved.write_text(str(step))
        trial.report(step, {"valid/score": trial.generator("noise", step).random()})


def forgetting(settings, trial):
    """Saves nothing."""
    for step in range(1, settings["steps"] + 1):
        trial.report(step, {"valid/score": trial.generator("noise", step).random()})


def run(workload: FunctionWorkload) -> list[Measurement]:
    found = []
    while (measured := workload.advance()) is not None:
        assert not workload.finished
        found.append(measured)
    assert workload.finished
    return found


def reported(measurements: list[Measurement]) -> list[tuple[int, dict[str, float]]]:
    return [(each.step, dict(each.metrics)) for each in measurements]


@pytest.mark.parametrize("train", [counting, forgetting])
@pytest.mark.parametrize("cut", [1, 3, 5])
def test_a_resumed_function_reports_the_rest_and_nothing_twice(train, cut: int, tmp_path: Path) -> None:
    whole = run(FunctionWorkload(train, Job(SETTINGS, seed=7)))
    assert [each.step for each in whole] == [1, 2, 3, 4, 5]
    begun = FunctionWorkload(train, Job(SETTINGS, seed=7))
    before = [begun.advance() for _ in range(cut)]
    begun.save(tmp_path)
    begun.close()
    resumed = FunctionWorkload(train, Job(SETTINGS, seed=7))
    resumed.restore(tmp_path)
    after = run(resumed)
    assert reported(before) + reported(after) == reported(whole)
    assert all(each.seconds >= before[-1].seconds for each in after)


def test_what_is_saved_later_than_a_report_is_not_in_its_checkpoint(tmp_path: Path) -> None:
    def train(settings, trial):
        trial.report(1, {"valid/score": 0.0})
        (trial.folder / "late.txt").write_text("after the report")
        trial.report(2, {"valid/score": 0.0})

    with closing(FunctionWorkload(train, Job(SETTINGS, seed=0))) as workload:
        workload.advance()
        workload.save(tmp_path)
    assert not list(tmp_path.rglob("late.txt"))


def test_a_link_to_a_folder_is_saved_and_restored_as_a_link(tmp_path: Path) -> None:
    """Data may be behind it, a whole disk of them, or the folder itself."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "large").write_text("gigabytes")
    seen = []

    def train(settings, trial):
        seen.append({path.name: path.is_symlink() for path in trial.folder.iterdir()})
        if not seen[-1]:
            (trial.folder / "data").symlink_to(tmp_path / "data")
            (trial.folder / "loop").symlink_to(".")
            (trial.folder / "best").write_text("weights")
            (trial.folder / "newest").symlink_to(trial.folder / "best")
        trial.report(1, {"valid/score": 0.0})
        trial.report(2, {"valid/score": 0.0})

    begun = FunctionWorkload(train, Job(SETTINGS, seed=0))
    begun.advance()
    (tmp_path / "trial").mkdir()
    made = write(tmp_path / "trial", begun._last_report, begun.save)
    begun.close()
    resumed = FunctionWorkload(train, Job(SETTINGS, seed=0))
    resumed.restore(made.state)
    assert resumed.advance().step == 2
    resumed.close()
    assert seen[1] == {"data": True, "loop": True, "best": False, "newest": False}
    assert (tmp_path / "data" / "large").exists()


def test_what_a_function_does_to_its_settings_is_its_own() -> None:
    def train(settings, trial):
        settings["inner"]["width"] = 0
        trial.report(1, {"valid/score": 0.0})

    settings = {"inner": {"width": 3}}
    with closing(FunctionWorkload(train, Job(settings, seed=0))) as workload:
        workload.advance()
    assert settings == {"inner": {"width": 3}}


def test_the_folder_of_a_killed_trial_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    killed = tmp_path / f"{TRIALS}999999999-{origin()}aa-abc"
    killed.mkdir()
    running = FunctionWorkload(counting, Job(SETTINGS, seed=0))
    running.advance()
    clear_abandoned()
    assert [path.name.startswith(f"{TRIALS}{os.getpid()}-") for path in tmp_path.iterdir()] == [True]
    running.close()
    assert not list(tmp_path.iterdir())


def test_an_exception_arrives_where_the_function_is_advanced() -> None:
    def train(settings, trial):
        trial.report(1, {"valid/score": 0.0})
        raise RuntimeError("no more")

    workload = FunctionWorkload(train, Job(SETTINGS, seed=0))
    workload.advance()
    with pytest.raises(RuntimeError, match="no more"):
        workload.advance()
    workload.close()


@pytest.mark.parametrize("code", [(), (0,), (None,)])
def test_a_script_may_end_by_exiting(code: tuple[object, ...]) -> None:
    """As those do that were made for a command line: without an error it has returned."""

    def train(settings, trial):
        trial.report(1, {"valid/score": 0.5})
        sys.exit(*code)

    assert reported(run(FunctionWorkload(train, Job(SETTINGS, seed=0)))) == [(1, {"valid/score": 0.5})]


@pytest.mark.parametrize("code", [1, "no data"])
def test_any_other_exit_is_its_failure(code: object) -> None:
    def train(settings, trial):
        trial.report(1, {"valid/score": 0.5})
        sys.exit(code)

    workload = FunctionWorkload(train, Job(SETTINGS, seed=0))
    workload.advance()
    with pytest.raises(SystemExit):
        workload.advance()


def test_a_function_that_never_reports_is_told() -> None:
    with pytest.raises(ValueError, match="must report at least once"):
        FunctionWorkload(lambda settings, trial: None, Job(SETTINGS, seed=0)).advance()
    with pytest.raises(ValueError, match="but with a value of type int: call"):
        FunctionWorkload(lambda settings, trial: 3, Job(SETTINGS, seed=0)).advance()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ({"valid/score": 0.5},),
            r"needs the number of the step .* got the metrics \{'valid/score': 0.5\} alone",
        ),
        (({"valid/score": 0.5}, 3), "takes the number of the step first, .*: swap the arguments"),
        ((0.5, 3), r'got 3 after 0\.5; Optuna.* is written trial\.report\(step, \{"valid/loss": value\}\)'),
        ((3, 0.5), "takes a mapping from name to number as metrics, got 0.5 after 3"),
    ],
)
def test_a_misused_report_says_how_it_is_called(arguments: tuple[object, ...], expected: str) -> None:
    workload = FunctionWorkload(lambda settings, trial: trial.report(*arguments), Job(SETTINGS, seed=0))
    with pytest.raises(TypeError, match=expected):
        workload.advance()


@pytest.mark.parametrize("quiet", [False, True])
def test_a_report_in_another_thread_is_told_though_nobody_looks_at_that(quiet: bool) -> None:
    def in_thread(trial, step):
        with pytest.raises(RuntimeError, match="must be called in") if quiet else nullcontext():
            trial.report(step, {"valid/score": 0.0})

    def train(settings, trial):
        trial.report(1, {"valid/score": 0.0})
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(in_thread, trial, 2)
        if not quiet:
            done.result()
        trial.report(3, {"valid/score": 0.0})

    workload = FunctionWorkload(train, Job(SETTINGS, seed=0))
    workload.advance()
    with pytest.raises(RuntimeError, match="the thread that the training function"):
        workload.advance()
    workload.close()


def test_named_streams_are_of_seed_and_name_alone() -> None:
    drawn = {}

    def train(settings, trial):
        drawn[settings["arm"]] = (trial.seed_of("weights"), trial.seed_of("data", 1), trial.seed)
        trial.report(1, {"valid/score": 0.0})

    for arm, seed in {"one": 3, "other": 3, "elsewhere": 4}.items():
        with closing(FunctionWorkload(train, Job({"arm": arm}, seed=seed))) as workload:
            workload.advance()
    assert drawn["one"] == drawn["other"] != drawn["elsewhere"]
    assert len(set(drawn["one"])) == 3
    assert all(0 <= seed < 2**32 for seed in drawn["one"])


def test_a_copy_of_the_process_cannot_report_and_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    def train(settings, trial):
        copy = get_context("fork").Process(target=trial.report, args=(1, {"valid/score": 0.0}))
        copy.start()
        copy.join()
        trial.report(2, {"valid/score": float(copy.exitcode)})

    with closing(FunctionWorkload(train, Job(SETTINGS, seed=0))) as workload:
        measured = workload.advance()
    assert measured.metrics == {"valid/score": 1.0}
    assert "RuntimeError: trial.report must be called in the process" in capfd.readouterr().err
