"""`haltsweep ui` without MLflow: refusals, printed addresses, browser pages and shutdown."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orchestrator.cli.commands import ui as command
from orchestrator.cli.commands.ui import ui
from orchestrator.errors import InputError
from orchestrator.plan.serialise import to_json
from orchestrator.tracking.mlflow import server
from tests.support.mlflow.mlflow_answers import MlflowServer, answering, with_arms
from tests.support.specs.plans import make_plan


@pytest.fixture(autouse=True)
def no_default_stores(monkeypatch):
    for name in ("HALTSWEEP_RUNS", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "")


@pytest.fixture
def runs(tmp_path):
    """Return a folder with one sweep, `gates`, of two arms."""
    folder = tmp_path / "runs" / "gates"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(to_json(replace(make_plan(2), name="gates")))
    return folder.parent


def record_browser_pages(monkeypatch: pytest.MonkeyPatch, *, has_terminal: bool = True) -> list[str]:
    """Return the list that receives each page which `ui` opens in a browser."""
    pages: list[str] = []
    monkeypatch.setattr(command.webbrowser, "open", pages.append)
    monkeypatch.setattr("sys.stdout.isatty", lambda: has_terminal)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return pages


def test_ui_creates_no_missing_store(runs):
    with pytest.raises(InputError, match=r"mlflow\.db"):
        ui("gates", runs)
    assert sorted(path.name for path in runs.iterdir()) == ["gates"]


def test_ui_opens_a_remote_server_at_the_arms(runs, monkeypatch, capsys):
    pages = record_browser_pages(monkeypatch)
    with answering(with_arms("arm-0", "arm-1")) as mlflow:
        ui("gates", runs, tracking=mlflow.url)
    output = capsys.readouterr().out
    assert f"compared: {mlflow.url}/#/compare-runs?runs=%5B%22id-arm-0%22%2C%22id-arm-1%22%5D" in output
    assert len(pages) == 1
    assert pages[0].startswith(f"{mlflow.url}/#/experiments/7/runs?viewStateShareKey=")


@pytest.mark.parametrize(("is_requested", "has_terminal"), [(False, True), (True, False), (True, True)])
def test_browser_opens_all_sweeps_only_on_a_terminal(is_requested, has_terminal, runs, monkeypatch):
    pages = record_browser_pages(monkeypatch, has_terminal=has_terminal)
    ui(None, runs, tracking="http://mlflow.example", browser=is_requested)
    assert pages == ["http://mlflow.example"] * (is_requested and has_terminal)


def test_ui_serves_a_local_store_until_a_signal(runs, monkeypatch, capsys):
    """The browser reads the address from a private file, because every user can read its arguments."""
    pages = record_browser_pages(monkeypatch)
    (runs / "mlflow.db").touch()
    serve_arguments: list[tuple[str, Path, int | None]] = []
    address_files: list[tuple[Path, str, int]] = []
    exits: list[bool] = []

    class SignallingServer:
        """A server that a signal reaches during its wait."""

        def __init__(self, mlflow: MlflowServer) -> None:
            self.url = mlflow.url

        def wait(self) -> None:
            file = Path(urlsplit(pages[0]).path)
            address_files.append((file, file.read_text(), file.stat().st_mode & 0o777))
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("the signal must end the wait")

    @contextmanager
    def serve(uri: str, artifacts: Path, port: int | None) -> Iterator[SignallingServer]:
        serve_arguments.append((uri, artifacts, port))
        with answering(with_arms("arm-0", "arm-1")) as mlflow:
            try:
                yield SignallingServer(mlflow)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)  # an impatient second signal
                exits.append(True)

    monkeypatch.setattr(server, "serve_store", serve)
    ui("gates", runs)
    assert serve_arguments == [(f"sqlite:///{runs / 'mlflow.db'}", runs / "mlartifacts", None)]
    assert "arms:     http://127.0.0.1" in capsys.readouterr().out
    assert exits == [True]
    ((file, text, mode),) = address_files
    assert pages == [file.as_uri()]
    assert "/#/experiments/7/runs?" in text
    assert mode == 0o600
    assert not file.exists()
