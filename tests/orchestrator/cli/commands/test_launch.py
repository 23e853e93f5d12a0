"""`haltsweep launch` and `resume`: early refusals and the arguments of the pipeline."""

import re
from pathlib import Path

import pytest

from orchestrator.errors import LeaseLost
from orchestrator.execution.sweep import launch as pipeline
from orchestrator.execution.sweep import launch_folder
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
        (("--tracking", "mlruns"), 2, "'mlruns'"),
        (("--storage", "mysql://a/b"), 2, "sqlite:///FILE"),
        (("--storage", "sqlite:///tiny.yaml"), 1, "file is not a database"),
        (("--storage", "sqlite:///nowhere/x.db"), 2, "nowhere"),
        (("--tracking", "sqlite:///tiny.yaml"), 2, "/tiny.yaml'"),
        (("--address", "nohost"), 2, "got 'nohost'"),
        (("--address", "127.0.0.1:1"), 2, "got '127.0.0.1:1'"),
        (("--pdb",), 2, "got --driver ray"),
        (("search.stopper={name: asha, grace_steps: five}",), 2, "'five'"),
        (("search.also={model.heads: {int: [1, 8]}}",), 2, "model.heads = 3, 5, 6 or 7"),
        (("--cpus", "9999"), 2, "cpus=9999 and gpus=0"),
        (("search.also={train.precision: {choice: [fp32, fp16]}}",), 2, "search.also.train.precision: fp16"),
        (("--runs", "tiny.yaml"), 2, "--runs"),
        (("--driver", "inline", "--address", "h:1"), 2, "got --driver inline"),
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
    options = (
        "--profile short --cpus 0.5 --gpus 0.125 --address host:6379 --runs r --data d --tracking http://m"
    )
    result = haltsweep("launch", "tiny.yaml", "confirm.best=1", *options.split(), "--storage", storage)
    assert (result.code, result.err) == (1, "enough\n")
    ((plan, folder, setup, text), options) = pipeline_calls[0]
    assert (plan.resources.cpus, plan.resources.gpus) == (0.5, 0.125)
    assert folder == SweepFolder(Path("r/tiny"))
    assert (setup.data_dir, setup.storage, setup.tracking_uri) == (Path("d"), storage, "http://m")
    assert "profiles" not in text
    assert (options["driver"], options["address"]) == ("ray", "host:6379")


def test_continue_resumes_an_unfinished_launch_only_with_the_same_spec(haltsweep, pipeline_calls, tmp_path):
    sweep_folder = SweepFolder(tmp_path / "runs" / "tiny")
    assert haltsweep("launch", "tiny.yaml", "--continue").code == 1
    (plan, *_), _ = pipeline_calls.pop()
    publish(plan, sweep_folder)
    haltsweep("launch", "tiny.yaml", "--continue", "--driver", "inline")
    (((planned_folder,), options),) = pipeline_calls
    assert (planned_folder.root, options["driver"]) == (Path("runs/tiny"), "inline")
    pipeline_calls.clear()
    plan_before = launch_folder.read_plan(sweep_folder)
    haltsweep("launch", "tiny.yaml", "search.seed=1", "--continue")
    (plan, *_), _ = pipeline_calls.pop()
    assert plan.spec_digest != plan_before.spec_digest  # no trial had started, so launch replaces the plan


def publish(plan, folder, setup=None):
    launch_folder.create_sweep_folder(plan, folder, "", {}, setup or launch_folder.Setup(Path("data")))


def test_data_error_names_the_next_command(haltsweep, monkeypatch):
    def fail(plan, folder, *_, **__):
        publish(plan, folder)
        raise DataError("data_dir must have free space")

    monkeypatch.setattr(pipeline, "run_sweep", fail)
    result = haltsweep("launch", "tiny.yaml", "--runs", "my runs")
    assert result.code == 1
    assert re.match("data_dir must have free space.*`haltsweep resume tiny --runs 'my runs'`\n$", result.err)


def test_resume_uses_the_driver_of_the_launch_by_default(haltsweep, pipeline_calls):
    haltsweep("launch", "tiny.yaml", "--driver", "inline")
    (plan, folder, setup, _), _ = pipeline_calls.pop()
    publish(plan, folder, setup)
    drivers = {}
    for arguments in ((), ("--driver", "ray"), ("--address", "h:1")):
        pipeline_calls.clear()
        haltsweep("resume", "tiny", *arguments)
        (((_, options),),) = (pipeline_calls,)
        drivers[arguments] = options["driver"]
    assert drivers == {(): "inline", ("--driver", "ray"): "ray", ("--address", "h:1"): "ray"}
