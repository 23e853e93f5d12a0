"""Fixtures that call the command line in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cli.display import console
from orchestrator.cli.locations import NO_TRACKING, TRACKING_VARIABLE
from orchestrator.cli.main import run
from tests.support.numerics.blank_figures import draw_blank_figures
from tests.support.processes.child_servers import connect_to_template
from tests.support.processes.commands import Answer

Run = Callable[..., Answer]


@pytest.fixture
def haltsweep(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> Run:
    """Run commands in an empty folder with a clean environment; the mark `drawn` turns figures on."""
    if request.node.get_closest_marker("drawn") is None:
        draw_blank_figures(monkeypatch.setattr)
    for name in ("HALTSWEEP_RUNS", "HALTSWEEP_DATA", TRACKING_VARIABLE, "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.argv", ["haltsweep"])
    monkeypatch.chdir(tmp_path)
    connect_to_template()  # the children that plan custom code share it
    console.out.cache_clear()
    console.err.cache_clear()

    def answer(*arguments: str) -> Answer:
        capfd.readouterr()
        try:
            run(arguments)
        except SystemExit as exit_:
            code = exit_.code
        assert isinstance(code, int)
        captured = capfd.readouterr()
        return Answer(code, captured.out, captured.err)

    return answer


@pytest.fixture
def untracked(haltsweep: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn MLflow off for launches in this process: its import takes longer than a small sweep runs."""
    monkeypatch.setenv(TRACKING_VARIABLE, NO_TRACKING)
