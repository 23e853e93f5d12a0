"""`haltsweep launch` and `resume`: early refusals and the arguments of the pipeline."""

from pathlib import Path

import pytest

from orchestrator.errors import LeaseLost
from orchestrator.execution.sweep import launch as pipeline
from orchestrator.execution.sweep.launch_folder import read_plan
from orchestrator.identity import SweepFolder
from tests.support.processes.commands import TINY
from trainables.data.store import DataError


@pytest.fixture(autouse=True)
def spec(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)


@pytest.fixture
def pipeline_calls(monkeypatch):
    """Return the calls of the pipeline, which stops at once."""
    calls = []

    def stop_pipeline(*arguments, **options):
        calls.append((arguments, options))
        raise LeaseLost("enough")

    monkeypatch.setattr(pipeline, "run_sweep", stop_pipeline)
    monkeypatch.setattr(pipeline, "resume_sweep", stop_pipeline)
    return calls


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (("--tracking", "mlruns"), 2, "an MLflow store must be a database or a server"),
        (("--storage", "mysql://a/b"), 2, "a ledger must be at sqlite:///FILE or postgresql"),
        (("--storage", "sqlite:///tiny.yaml"), 1, "file is not a database"),
        (("--storage", "sqlite:///nowhere/x.db"), 2, "the folder of the ledger, "),
        (("--tracking", "ftp://host"), 2, "an MLflow store must be one of http, https, databricks, sqlite"),
        (("--tracking", "http://"), 2, "an MLflow store must be one of http, https, databricks, sqlite"),
        (("--tracking", "sqlite:///tiny.yaml"), 2, "an MLflow store must be a SQLite database"),
        (("--address", "nohost"), 2, "got 'nohost': it is not of the form HOST:PORT; see `ray status`"),
        (("--address", "127.0.0.1:1"), 2, "must be that of a running Ray cluster, got '127.0.0.1:1': [Errno"),
        (("--pdb",), 2, "--pdb requires --driver inline, which runs trials in this process, got"),
        (("--address", "local"), 2, "got 'local': it is not of the form HOST:PORT"),
        (("--address", "http://host:8265"), 2, "got 'http://host:8265': it is not of the form HOST:PORT"),
        (
            ("--address", "ray://head.example:10001"),
            2,
            "launch on a machine of the cluster with the address of its head, head.example:6379 unless",
        ),
        (("search.stopper={name: asha, grace_steps: five}",), 2, "grace_steps = the text 'five'"),
        (("search.also={model.heads: {int: [1, 8]}}",), 2, "model.heads = 3, 5, 6 or 7"),
        (("--cpus", "9999"), 2, "cpus=9999 and gpus=0"),
        (("--gpus", "1000"), 2, "accumulate=1, ranks=1000"),
        (("baseline.train.precision=fp16",), 2, "baseline.train.precision: fp16"),
        (("baseline.train.precision=tf32",), 2, "baseline.train.precision: tf32"),
        (("search.also={train.precision: {choice: [fp32, fp16]}}",), 2, "search.also.train.precision: fp16"),
        (("--runs", "tiny.yaml"), 2, "tiny.yaml is a file"),
        (("--data", "tiny.yaml"), 2, "tiny.yaml is a file"),
        (("--driver", "inline", "--address", "h:1"), 2, "--driver ray, got --driver inline"),
        (("--cpus", "-1"), 2, "resources.cpus"),
        (("--gpus", "nan"), 2, "resources.gpus"),
        (("--profile", "shrt"), 2, "'short'"),
    ],
)
def test_launch_refuses_invalid_options_before_it_writes_files(haltsweep, tmp_path, options, code, expected):
    result = haltsweep("launch", "tiny.yaml", *options)
    assert result.code == code
    assert expected in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_launch_passes_its_options_to_the_pipeline(haltsweep, tmp_path, pipeline_calls):
    storage = f"sqlite:///{tmp_path / 'x.db'}"
    result = haltsweep(
        *(
            "launch",
            "tiny.yaml",
            "confirm.best=1",
            "--profile",
            "short",
            "--cpus",
            "0.5",
            "--gpus",
            "0.1234567891",
        ),
        *(
            "--address",
            "host:6379",
            "--runs",
            "r",
            "--data",
            "d",
            "--storage",
            storage,
            "--tracking",
            "http://m",
        ),
    )
    assert (result.code, result.err) == (1, "enough\n")
    ((plan, folder, setup, text), options) = pipeline_calls[0]
    assert (plan.resources.cpus, plan.resources.gpus) == (0.5, 0.1234567891)
    assert folder == SweepFolder(Path("r/tiny"))
    assert (setup.data_dir, setup.storage, setup.tracking_uri) == (Path("d"), storage, "http://m")
    assert "profiles" not in text
    assert (options["driver"], options["address"]) == ("ray", "host:6379")


def test_continue_resumes_an_unfinished_launch_only_with_the_same_spec(haltsweep, pipeline_calls, tmp_path):
    sweep_folder = SweepFolder(tmp_path / "runs" / "tiny")
    assert haltsweep("launch", "tiny.yaml", "--continue").code == 1
    (plan, *_), _ = pipeline_calls.pop()
    publish(plan, sweep_folder)
    second_result = haltsweep("launch", "tiny.yaml", "--continue", "--driver", "inline")
    assert second_result.out == "", "a resume that may still be refused is not announced"
    (((planned_folder,), options),) = pipeline_calls
    assert (planned_folder.root, options["driver"]) == (Path("runs/tiny"), "inline")
    pipeline_calls.clear()
    plan_before = read_plan(sweep_folder)
    haltsweep("launch", "tiny.yaml", "search.seed=1", "--continue")
    (plan, *_), _ = pipeline_calls.pop()
    assert plan.spec_digest != plan_before.spec_digest  # no trial had started, so launch replaces the plan


def publish(plan, folder, setup=None):
    from orchestrator.execution.sweep.launch_folder import Setup
    from orchestrator.execution.sweep.launch_folder import publish as publish_plan

    publish_plan(plan, folder, "", {}, setup or Setup(Path("data")))


def test_data_error_names_the_next_command(haltsweep, monkeypatch):
    def fail(*_, **__):
        raise DataError("data_dir must have free space")

    def fail_later(plan, folder, *_, **__):
        publish(plan, folder)
        fail()

    monkeypatch.setattr(pipeline, "run_sweep", fail)
    result = haltsweep("launch", "tiny.yaml", "--runs", "my runs")
    assert result.code == 1
    assert result.err == "data_dir must have free space; then launch it again\n"
    monkeypatch.setattr(pipeline, "run_sweep", fail_later)
    result = haltsweep("launch", "tiny.yaml", "--runs", "my runs")
    assert result.err == "data_dir must have free space; then `haltsweep resume tiny --runs 'my runs'`\n"


def test_resume_refuses_invalid_options_and_unknown_sweeps(haltsweep):
    result = haltsweep("resume", "tiny", "--driver", "inline", "--address", "h:1")
    assert result.code == 2
    assert "--driver ray" in result.err
    result = haltsweep("resume", "tiny")
    assert result.code == 2
    assert "'tiny'" in result.err


def test_resume_uses_the_driver_of_the_launch_by_default(haltsweep, pipeline_calls, capsys):
    haltsweep("launch", "tiny.yaml", "--driver", "inline")
    (plan, folder, setup, _), _ = pipeline_calls.pop()
    publish(plan, folder, setup)
    drivers = {}
    for arguments in ((), ("--driver", "ray"), ("--address", "h:1")):
        pipeline_calls.clear()
        haltsweep("resume", "tiny", *arguments)
        (((_, options),),) = (pipeline_calls,)
        options["watch"].on_open()
        drivers[arguments] = options["driver"], "as launched" in capsys.readouterr().out
    assert drivers == {
        (): ("inline", True),
        ("--driver", "ray"): ("ray", False),
        ("--address", "h:1"): ("ray", False),
    }


def test_resume_warns_that_an_edited_spec_has_no_effect(haltsweep, pipeline_calls):
    haltsweep("launch", "tiny.yaml", "--driver", "inline")
    (plan, folder, setup, _), _ = pipeline_calls.pop()
    publish(plan, folder, setup)
    assert str(folder.spec) not in haltsweep("resume", "tiny").err
    folder.spec.write_text(f"{folder.spec.read_text()}# one more arm\n")
    assert str(folder.spec) in haltsweep("resume", "tiny").err


@pytest.mark.usefixtures("untracked")
def test_launch_refuses_an_existing_sweep_before_it_prints_anything(haltsweep, tmp_path):
    arguments = ("launch", "tiny.yaml", "--profile", "short", "--driver", "inline")
    assert haltsweep(*arguments).code == 0
    second_result = haltsweep(*arguments)
    assert (second_result.code, second_result.out) == (2, "")
    assert "'tiny'" in second_result.err
