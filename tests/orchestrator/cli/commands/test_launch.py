"""`haltsweep launch` and `resume`: what is refused before anything is written, what is handed on."""

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
def handed_on(monkeypatch):
    """What the pipeline was called with; it stops there."""
    calls = []

    def stop(*arguments, **options):
        calls.append((arguments, options))
        raise LeaseLost("enough")

    monkeypatch.setattr(pipeline, "run_sweep", stop)
    monkeypatch.setattr(pipeline, "resume_sweep", stop)
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
        (
            ("--pdb",),
            2,
            "--pdb requires --driver inline, which runs trials in this process, got",
        ),
        (("--address", "local"), 2, "got 'local': it is not of the form HOST:PORT"),
        (("--address", "http://host:8265"), 2, "got 'http://host:8265': it is not of the form HOST:PORT"),
        (
            ("--address", "ray://head.example:10001"),
            2,
            "launch on a machine of the cluster with the address of its head, head.example:6379 unless",
        ),
        (
            ("search.stopper={name: asha, grace_steps: five}",),
            2,
            "stopper 'asha' cannot be used with grace_steps = the text 'five': The value of `grace_steps` is",
        ),
        (
            ("search.also={model.heads: {int: [1, 8]}}",),
            2,
            "model.heads = 3, 5, 6 or 7: width must be a multiple of heads",
        ),
        (
            ("--cpus", "9999"),
            2,
            "a trial must fit on one node: it needs cpus=9999 and gpus=0, but ",
        ),
        (
            ("--gpus", "1000"),
            2,
            "accumulate * ranks must be at most batch_size, got accumulate=1, ranks=1000",
        ),
        (
            ("baseline.train.precision=fp16",),
            2,
            "fp16 must run on a CUDA device, and resources.gpus is 0: give each trial one or a part of it",
        ),
        (("baseline.train.precision=tf32",), 2, "tf32 must run on a CUDA device, and resources.gpus is 0"),
        (
            ("search.also={train.precision: {choice: [fp32, fp16]}}",),
            2,
            "search.also.train.precision: fp16 must run on a CUDA device",
        ),
        (("--runs", "tiny.yaml"), 2, "sweeps need a folder"),
        (("--data", "tiny.yaml"), 2, "datasets need a folder"),
        (
            ("--driver", "inline", "--address", "h:1"),
            2,
            "--address requires --driver ray, got --driver inline",
        ),
        (("--cpus", "-1"), 2, "resources.cpus"),
        (("--gpus", "nan"), 2, "resources.gpus"),
        (("--profile", "shrt"), 2, "Did you mean 'short'?"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(haltsweep, tmp_path, options, code, expected):
    answer = haltsweep("launch", "tiny.yaml", *options)
    assert answer.code == code
    assert expected in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_options_are_handed_on(haltsweep, tmp_path, handed_on):
    storage = f"sqlite:///{tmp_path / 'x.db'}"
    answer = haltsweep(
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
    assert (answer.code, answer.err) == (1, "enough\n")
    ((plan, folder, setup, text), options) = handed_on[0]
    assert (plan.resources.cpus, plan.resources.gpus) == (0.5, 0.1234567891)
    assert folder == SweepFolder(Path("r/tiny"))
    assert (setup.data_dir, setup.storage, setup.tracking_uri) == (Path("d"), storage, "http://m")
    assert "profiles" not in text
    assert (options["driver"], options["address"]) == ("ray", "host:6379")


def test_a_sweep_in_the_making_is_continued_only_if_it_is_the_same(haltsweep, handed_on, tmp_path):
    made = SweepFolder(tmp_path / "runs" / "tiny")
    assert haltsweep("launch", "tiny.yaml", "--continue").code == 1
    (plan, *_), _ = handed_on.pop()
    publish(plan, made)
    again = haltsweep("launch", "tiny.yaml", "--continue", "--driver", "inline")
    assert again.out == "", "a resume that may still be refused is not announced"
    (((folder,), options),) = handed_on
    assert (folder.root, options["driver"]) == (Path("runs/tiny"), "inline")
    handed_on.clear()
    before = read_plan(made)
    haltsweep("launch", "tiny.yaml", "search.seed=1", "--continue")
    (plan, *_), _ = handed_on.pop()
    assert plan.spec_digest != before.spec_digest  # nothing had begun: it is launched anew


def publish(plan, folder, setup=None):
    from orchestrator.execution.sweep.launch_folder import Setup
    from orchestrator.execution.sweep.launch_folder import publish as make

    make(plan, folder, "", {}, setup or Setup(Path("data")))


def test_data_that_cannot_be_built_are_told_with_the_way_on(haltsweep, monkeypatch):
    def fail(*_, **__):
        raise DataError("data_dir must have free space")

    def fail_later(plan, folder, *_, **__):
        publish(plan, folder)
        fail()

    monkeypatch.setattr(pipeline, "run_sweep", fail)
    answer = haltsweep("launch", "tiny.yaml", "--runs", "my runs")
    assert answer.code == 1
    assert answer.err == "data_dir must have free space; then launch it again\n"
    monkeypatch.setattr(pipeline, "run_sweep", fail_later)
    answer = haltsweep("launch", "tiny.yaml", "--runs", "my runs")
    assert answer.err == "data_dir must have free space; then `haltsweep resume tiny --runs 'my runs'`\n"


def test_resume_refuses_what_is_no_sweep(haltsweep):
    answer = haltsweep("resume", "tiny", "--driver", "inline", "--address", "h:1")
    assert answer.code == 2
    assert "--address requires --driver ray" in answer.err
    answer = haltsweep("resume", "tiny")
    assert answer.code == 2
    assert "no sweep named 'tiny' in runs" in answer.err


def test_resume_goes_on_with_the_driver_of_the_launch_unless_told_otherwise(haltsweep, handed_on, capsys):
    haltsweep("launch", "tiny.yaml", "--driver", "inline")
    (plan, folder, setup, _), _ = handed_on.pop()
    publish(plan, folder, setup)
    chosen = {}
    for given in ((), ("--driver", "ray"), ("--address", "h:1")):
        handed_on.clear()
        haltsweep("resume", "tiny", *given)
        (((_, options),),) = (handed_on,)
        options["watch"].on_open()
        chosen[given] = options["driver"], "as launched" in capsys.readouterr().out
    assert chosen == {
        (): ("inline", True),
        ("--driver", "ray"): ("ray", False),
        ("--address", "h:1"): ("ray", False),
    }


def test_resume_says_that_an_edited_spec_of_the_sweep_changes_nothing(haltsweep, handed_on):
    haltsweep("launch", "tiny.yaml", "--driver", "inline")
    (plan, folder, setup, _), _ = handed_on.pop()
    publish(plan, folder, setup)
    message = "was changed since the launch, and the sweep still runs the plan of the launch"
    assert message not in haltsweep("resume", "tiny").err
    folder.spec.write_text(f"{folder.spec.read_text()}# one more arm\n")
    assert message in haltsweep("resume", "tiny").err


@pytest.mark.usefixtures("untracked")
def test_a_sweep_that_there_is_is_refused_before_anything_is_said(haltsweep, tmp_path):
    made = ("launch", "tiny.yaml", "--profile", "short", "--driver", "inline")
    assert haltsweep(*made).code == 0
    again = haltsweep(*made)
    assert (again.code, again.out) == (2, "")
    assert "a sweep is launched once, and 'tiny' exists" in again.err
