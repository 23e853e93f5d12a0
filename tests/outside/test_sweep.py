"""A sweep of a package installed outside of the tree is searched, killed, resumed and reported."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.store import Ledger
from tests.support.numerics.distributions import PROJECT, SPEC
from tests.support.processes.commands import PATIENCE_S, Shell, wait_for

INLINE = ("--driver", "inline")
ENDED = EventKind.ENDED
TRIALS = 8
"""Number of trials: two arms, each with two search and two confirm trials."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder in which pip has installed the package without an index."""
    source, target = tmp_path / "source", tmp_path / "site"
    shutil.copytree(PROJECT, source)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", target, source],
        check=True,
        timeout=PATIENCE_S,
    )
    return target


@pytest.mark.slow
@pytest.mark.longest
def test_sweep_of_an_external_package_runs_and_resumes(tmp_path: Path, site: Path) -> None:
    shell = Shell.at(tmp_path, SPEC.read_text())
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    sweep = SweepFolder(shell.folder / "runs" / "majority")
    with shell.started("launch", "tiny.yaml", *INLINE, PYTHONPATH=path) as process:
        wait_for(lambda: len(ended(sweep)) >= 2, process)
        process.kill()
    assert len(ended(sweep)) < TRIALS
    resumed = shell.run("resume", "majority", *INLINE, PYTHONPATH=path)
    assert resumed.code == 0, resumed.err
    assert list(ended(sweep).values()) == ["finished"] * TRIALS
    reported = shell.run("report", "majority", PYTHONPATH=path)
    assert reported.code == 0, reported.err
    assert "two-layers" in (sweep.root / "report" / "report.md").read_text()


def events(folder: SweepFolder) -> list[Event]:
    """Return the whole log; empty before it exists."""
    try:
        with Ledger.open(folder.ledger_url, folder.root.name) as ledger:
            return list(ledger.events())
    except StoreError:
        return []


def ended(folder: SweepFolder) -> dict[str, str]:
    """Return the outcome of every ended trial."""
    return {event.trial_id or "": event.payload["kind"] for event in events(folder) if event.kind is ENDED}
