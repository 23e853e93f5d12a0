"""Where things live: option, else variable, else the working directory; and what to type to get back."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.locations import (
    command,
    data_root,
    find_sweep,
    runs_root,
    tracked_by_launch,
    tracking_uri,
)
from orchestrator.cli.stored_sweep import found, open_stored_sweep
from orchestrator.errors import InputError, StoreError
from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import to_json
from tests.support.specs.plans import make_plan


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    for name in ("HALTSWEEP_RUNS", "HALTSWEEP_DATA", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep(name, runs="runs", called=None):
    folder = Path(runs) / (called or name)
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(to_json(replace(make_plan(1), name=name)))
    return SweepFolder(folder)


@pytest.mark.parametrize(
    ("root", "variable", "default"),
    [(runs_root, "HALTSWEEP_RUNS", "runs"), (data_root, "HALTSWEEP_DATA", "data")],
)
def test_option_before_variable_before_default(monkeypatch, root, variable, default):
    assert root(None) == Path(default)
    monkeypatch.setenv(variable, "")
    assert root(None) == Path(default)
    monkeypatch.setenv(variable, "else where")
    assert root(None) == Path("else where")
    assert root(Path("given")) == Path("given")


def test_the_default_tracking_store_is_in_the_runs_folder(here, monkeypatch):
    assert tracking_uri(None, Path("my runs")) == f"sqlite:///{here}/my runs/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server")
    assert tracking_uri(None, Path("my runs")) == "http://server"
    assert tracking_uri("sqlite:///mine.db", Path("my runs")) == f"sqlite:///{here}/mine.db"
    assert tracking_uri("http://given", Path("my runs")) == "http://given"


def test_only_a_launch_may_disable_tracking(here, monkeypatch):
    assert tracked_by_launch("none", Path("runs")) is None
    with pytest.raises(InputError, match="--tracking none is an option of launch only"):
        tracking_uri("none", Path("runs"))
    beside = tracking_uri(None, Path("runs"))
    assert tracked_by_launch(None, Path("runs")) == beside
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    assert tracked_by_launch(None, Path("runs")) is None
    assert tracked_by_launch("http://given", Path("runs")) == "http://given"
    assert tracking_uri(None, Path("runs")) == beside, "what was launched so can be brought there later"


@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_password_in_a_sqlite_url_is_refused(here, monkeypatch, by):
    url = "sqlite:///user:pw1@h/x.db"
    if by == "variable":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
    with pytest.raises(InputError, match=r"must be a file, without user or host, got 'sqlite") as raised:
        tracked_by_launch(url if by == "option" else None, Path("runs"))
    assert "pw1" not in str(raised.value)
    assert not list(here.iterdir())


@pytest.mark.parametrize("root", [runs_root, data_root])
def test_a_file_instead_of_a_folder_is_refused(here, root):
    (here / "file").write_text("")
    for given in (Path("file"), Path("file") / "below"):
        with pytest.raises(InputError, match=rf"need a folder, but {here}/file is a file; choose"):
            root(given)


@pytest.mark.parametrize("root", [runs_root, data_root])
def test_unusable_paths_are_refused(here, root):
    (here / "loop").symlink_to("loop")
    for given in (Path("loop"), Path("loop") / "below", Path("a" * 300)):
        with pytest.raises(InputError, match="must have a valid path"):
            root(given)


def test_a_sweep_is_found_by_name_and_by_folder(here, monkeypatch):
    sweep("one")
    assert find_sweep("one", Path("runs")).root == Path("runs/one")
    assert find_sweep("runs/one", Path("other")).root == Path("runs/one")
    monkeypatch.chdir("runs/one")
    assert find_sweep(".", Path("other")).name == "one"
    (here / "runs/one/report").mkdir()
    monkeypatch.chdir("report")
    assert find_sweep("..", Path("other")).name == "one"


def test_unknown_sweeps_are_answered_with_all_known():
    with pytest.raises(InputError, match=r"no sweep named 'x' in runs\. Known: none"):
        find_sweep("x", Path("runs"))
    sweep("gates"), sweep("depth")
    with pytest.raises(InputError, match=r"'gate' in runs\. Did you mean 'gates'\? Known: depth, gates"):
        find_sweep("gate", Path("runs"))


def test_a_folder_that_was_renamed_is_refused():
    sweep("gates", called="gates-old")
    with pytest.raises(InputError, match="runs/gates-old must have the name of its sweep, 'gates'"):
        found("gates-old", Path("runs"))


def test_a_sweep_without_its_ledger_is_refused_and_none_is_made(here):
    folder = sweep("gates")
    (folder.root / "launch.json").write_text('{"data_dir": "data"}')
    with (
        pytest.raises(StoreError, match="`haltsweep resume gates`"),
        open_stored_sweep("gates", Path("runs")),
    ):
        pass
    assert not folder.ledger.exists()


def test_printed_commands_work_from_the_current_directory(monkeypatch):
    assert command("ui", SweepFolder(Path("runs/one"))) == "haltsweep ui one"
    away = SweepFolder(Path("it's here/one"))
    assert command("resume", away) == """haltsweep resume one --runs 'it'"'"'s here'"""
    monkeypatch.setenv("HALTSWEEP_RUNS", "it's here")
    assert command("resume", away) == "haltsweep resume one"


def test_a_name_that_no_folder_can_have_is_no_sweep():
    for name in ("x" * 300, "x" * 5000):
        with pytest.raises(InputError, match=r"no sweep named .xxx.*Known: none"):
            find_sweep(name, Path("runs"))


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("--runs", "folder"),
        ("--data", "folder"),
        ("--tracking", "location"),
        ("--storage", "location"),
        ("--checkpoints", "location"),
        ("--address", "location"),
    ],
)
def test_an_option_without_a_name_is_refused(haltsweep, tmp_path, monkeypatch, option, what):
    """As an unset variable leaves it: neither the working folder nor the default is meant."""
    monkeypatch.chdir(tmp_path)
    found = haltsweep("launch", "any.yaml", option, "")
    assert (found.code, found.out) == (2, "")
    assert found.err == f"a {what} must not be empty; omit the option instead\n"
    assert not [*tmp_path.iterdir()]
