"""Locations of files: option, then environment variable, then working directory; and printed commands."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.locations import (
    command,
    data_root,
    find_sweep,
    launch_tracking_uri,
    runs_root,
    tracking_uri,
)
from orchestrator.cli.stored_sweep import launched_sweep
from orchestrator.errors import InputError
from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import to_json
from tests.support.specs.plans import make_plan


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch):
    for name in ("HALTSWEEP_RUNS", "HALTSWEEP_DATA", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_sweep(name, runs="runs", folder_name=None):
    folder = Path(runs) / (folder_name or name)
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(to_json(replace(make_plan(1), name=name)))
    return SweepFolder(folder)


@pytest.mark.parametrize(
    ("root", "variable", "default"),
    [(runs_root, "HALTSWEEP_RUNS", "runs"), (data_root, "HALTSWEEP_DATA", "data")],
)
def test_option_precedes_variable_and_default(monkeypatch, root, variable, default):
    assert root(None) == Path(default)
    monkeypatch.setenv(variable, "")
    assert root(None) == Path(default)
    monkeypatch.setenv(variable, "else where")
    assert root(None) == Path("else where")
    assert root(Path("given")) == Path("given")


def test_default_tracking_store_is_in_the_runs_folder(working_folder, monkeypatch):
    assert tracking_uri(None, Path("my runs")) == f"sqlite:///{working_folder}/my runs/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server")
    assert tracking_uri(None, Path("my runs")) == "http://server"
    assert tracking_uri("sqlite:///mine.db", Path("my runs")) == f"sqlite:///{working_folder}/mine.db"
    assert tracking_uri("http://given", Path("my runs")) == "http://given"


def test_only_launch_may_disable_tracking(working_folder, monkeypatch):
    assert launch_tracking_uri("none", Path("runs")) is None
    with pytest.raises(InputError, match="--tracking none"):
        tracking_uri("none", Path("runs"))
    default_store = tracking_uri(None, Path("runs"))
    assert launch_tracking_uri(None, Path("runs")) == default_store
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    assert launch_tracking_uri(None, Path("runs")) is None
    assert launch_tracking_uri("http://given", Path("runs")) == "http://given"
    assert tracking_uri(None, Path("runs")) == default_store, "a later sync can use the default store"


def test_password_in_a_sqlite_url_is_refused(working_folder):
    with pytest.raises(InputError, match="sqlite") as error:
        launch_tracking_uri("sqlite:///user:pw1@h/x.db", Path("runs"))
    assert "pw1" not in str(error.value)
    assert not list(working_folder.iterdir())


@pytest.mark.parametrize("root", [runs_root, data_root])
def test_file_in_place_of_a_folder_is_refused(working_folder, root):
    (working_folder / "file").write_text("")
    for path in (Path("file"), Path("file") / "below"):
        with pytest.raises(InputError, match=f"{working_folder}/file"):
            root(path)


def test_sweep_is_found_by_name_and_by_folder(working_folder, monkeypatch):
    write_sweep("one")
    assert find_sweep("one", Path("runs")).root == Path("runs/one")
    assert find_sweep("runs/one", Path("other")).root == Path("runs/one")
    monkeypatch.chdir("runs/one")
    assert find_sweep(".", Path("other")).name == "one"
    (working_folder / "runs/one/report").mkdir()
    monkeypatch.chdir("report")
    assert find_sweep("..", Path("other")).name == "one"


def test_unknown_sweeps_are_answered_with_all_known():
    with pytest.raises(InputError, match="'x'"):
        find_sweep("x", Path("runs"))
    write_sweep("gates"), write_sweep("depth")
    with pytest.raises(InputError, match=r"'gate'.*'gates'.*depth, gates"):
        find_sweep("gate", Path("runs"))


def test_renamed_folder_is_refused():
    write_sweep("gates", folder_name="gates-old")
    with pytest.raises(InputError, match=r"runs/gates-old .*'gates'"):
        launched_sweep("gates-old", Path("runs"))


def test_printed_commands_work_from_the_current_directory(monkeypatch):
    assert command("ui", SweepFolder(Path("runs/one"))) == "haltsweep ui one"
    distant_folder = SweepFolder(Path("it's here/one"))
    assert command("resume", distant_folder) == """haltsweep resume one --runs 'it'"'"'s here'"""
    monkeypatch.setenv("HALTSWEEP_RUNS", "it's here")
    assert command("resume", distant_folder) == "haltsweep resume one"


@pytest.mark.parametrize("option", ["--runs", "--storage"])
def test_empty_option_is_refused(haltsweep, tmp_path, option):
    """An unset shell variable leaves an empty option, which does not mean the default."""
    result = haltsweep("launch", "any.yaml", option, "")
    assert (result.code, result.out) == (2, "")
    assert "any.yaml" not in result.err
    assert not [*tmp_path.iterdir()]
