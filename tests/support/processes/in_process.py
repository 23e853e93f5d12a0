"""The command line, called in this process: a fixture that conftest files take from here."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cli.display import console
from orchestrator.cli.locations import TRACKING_VARIABLE, UNTRACKED
from orchestrator.cli.main import run
from tests.support.numerics.blank_figures import draw_none
from tests.support.processes.commands import Answer

Run = Callable[..., Answer]


@pytest.fixture
def haltsweep(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> Run:
    """Runs a command in an empty folder, where nothing steers it but its arguments; see the mark `drawn`."""
    if request.node.get_closest_marker("drawn") is None:
        draw_none(monkeypatch.setattr)
    for name in ("HALTSWEEP_RUNS", "HALTSWEEP_DATA", TRACKING_VARIABLE, "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.argv", ["haltsweep"])
    monkeypatch.chdir(tmp_path)
    console.out.cache_clear()
    console.err.cache_clear()

    def answer(*arguments: str) -> Answer:
        capsys.readouterr()
        try:
            run(arguments)
        except SystemExit as exit_:
            code = exit_.code
        assert isinstance(code, int)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return answer


@pytest.fixture
def untracked(haltsweep: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch in this process writes no MLflow: what follows it loads longer than a small sweep takes."""
    monkeypatch.setenv(TRACKING_VARIABLE, UNTRACKED)
