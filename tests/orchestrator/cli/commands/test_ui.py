"""`haltsweep ui`, without MLflow: what is refused, what is printed, what is opened, how it ends."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orchestrator.cli.commands import ui as command
from orchestrator.cli.commands.ui import ended_by_signals, ui
from orchestrator.errors import InputError
from orchestrator.plan.serialise import to_json
from orchestrator.tracking.mlflow import server
from tests.support.mlflow.mlflow_answers import Answers, answering, with_arms
from tests.support.specs.plans import make_plan


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HALTSWEEP_RUNS", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with one sweep, `gates`, of two arms."""
    folder = tmp_path / "runs" / "gates"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(to_json(replace(make_plan(2), name="gates")))
    return folder.parent


def watched(monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True, screen: bool = True) -> list[str]:
    """Pages that a browser would be opened at."""
    pages: list[str] = []
    monkeypatch.setattr(command.webbrowser, "open", pages.append)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("DISPLAY", ":0" if screen else "")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return pages


def test_an_unknown_sweep_is_answered_with_the_nearest(runs: Path) -> None:
    with pytest.raises(InputError, match=r"no sweep named 'gatse' in .*Did you mean 'gates'\?"):
        ui("gatse", runs)


def test_a_store_that_is_not_there_is_not_made(runs: Path) -> None:
    with pytest.raises(InputError, match=r"mlflow\.db"):
        ui("gates", runs)
    assert sorted(path.name for path in runs.iterdir()) == ["gates"]


def test_a_file_store_is_refused(runs: Path) -> None:
    with pytest.raises(InputError, match="must be a database or a server"):
        ui("gates", runs, tracking="mlruns")


def test_a_server_elsewhere_is_opened_at_the_arms(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = watched(monkeypatch)
    with answering(with_arms("arm-0", "arm-1")) as there:
        ui("gates", runs, tracking=there.url)
    printed = capsys.readouterr().out
    assert f"compared: {there.url}/#/compare-runs?runs=%5B%22id-arm-0%22%2C%22id-arm-1%22%5D" in printed
    assert len(opened) == 1
    assert opened[0].startswith(f"{there.url}/#/experiments/7/runs?viewStateShareKey=")


def test_the_server_a_sweep_was_launched_with_is_known(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(with_arms("arm-0", "arm-1")) as there:
        launched = {"data_dir": "/data", "storage": None, "tracking_uri": there.url, "workload": "m:C"}
        (runs / "gates" / "launch.json").write_text(json.dumps(launched))
        ui("gates", runs)
    assert f"{there.url}/#/experiments/7" in capsys.readouterr().out


def test_without_a_name_all_sweeps_are_shown(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = watched(monkeypatch)
    ui(None, runs, tracking="http://mlflow.example")
    assert "http://mlflow.example" in capsys.readouterr().out
    assert opened == ["http://mlflow.example"]


@pytest.mark.parametrize(
    ("asked", "terminal", "screen"), [(False, True, True), (True, False, True), (True, True, False)]
)
def test_no_browser_is_opened(
    asked: bool, terminal: bool, screen: bool, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = watched(monkeypatch, terminal=terminal, screen=screen)
    ui(None, runs, tracking="http://mlflow.example", browser=asked)
    assert opened == []


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_store_on_this_machine_is_served_until_a_signal(
    name: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / "mlflow.db").touch()
    asked: list[tuple[str, Path, int | None]] = []
    ended: list[bool] = []

    @contextmanager
    def fake(uri: str, artifacts: Path, port: int | None) -> Iterator["Fake"]:
        asked.append((uri, artifacts, port))
        with answering(with_arms("arm-0", "arm-1")) as answers:
            try:
                yield Fake(answers, signal.Signals[name])
            finally:
                os.kill(os.getpid(), signal.Signals[name])  # an impatient second one
                ended.append(True)

    monkeypatch.setattr(server, "serve_store", fake)
    ui("gates", runs)
    assert asked == [(f"sqlite:///{runs / 'mlflow.db'}", runs / "mlartifacts", None)]
    assert "arms:     http://127.0.0.1" in capsys.readouterr().out
    assert ended == [True]
    assert not [each for each in threading.enumerate() if "serve_forever" in each.name], "it would never rest"


def test_a_browser_learns_the_address_from_a_file_that_others_cannot_read(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user can read the arguments of a browser."""
    opened = watched(monkeypatch)
    (runs / "mlflow.db").touch()
    seen: list[tuple[Path, str, int]] = []

    @contextmanager
    def fake(uri: str, artifacts: Path, port: int | None) -> Iterator["Fake"]:
        with answering(with_arms("arm-0", "arm-1")) as answers:
            yield Watcher(answers, signal.SIGTERM)

    class Watcher(Fake):
        def wait(self) -> None:
            file = Path(urlsplit(opened[0]).path)
            seen.append((file, file.read_text(), file.stat().st_mode & 0o777))
            super().wait()

    monkeypatch.setattr(server, "serve_store", fake)
    ui("gates", runs)
    assert len(opened) == len(seen) == 1
    assert opened[0].startswith("file:///")
    file, text, mode = seen[0]
    assert "/#/experiments/7/runs?" in text
    assert mode == 0o600
    assert not file.exists()


class Fake:
    """A server that a signal reaches while it is waited for."""

    def __init__(self, answers: Answers, number: signal.Signals) -> None:
        self.url = answers.url
        self._number = number

    def wait(self) -> None:
        os.kill(os.getpid(), self._number)
        raise AssertionError("the signal must be heard")


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ended_by_signals():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
