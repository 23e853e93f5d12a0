"""Custom functions and workloads are searched, killed, resumed, confirmed, re-evaluated and reported."""

import json
import os
import signal
from contextlib import suppress

import pytest

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from tests.support.processes.commands import Shell, wait_for
from tests.support.training_code.own_code import FORMS

pytestmark = pytest.mark.slow
QUICK = ("--driver", "inline")


def shell_at(root, form):
    root.mkdir()
    name, code, spec = FORMS[form]
    shell = Shell.at(root, spec)
    (shell.folder / "tiny.yaml").rename(shell.folder / "own.yaml")
    (shell.folder / f"{name}.py").write_text(code)
    return shell


def report_results(haltsweep, shell):
    """Return the report's cells and effects, and the outcomes of trials for each arm."""
    answer = haltsweep("report", str(shell.folder / "runs" / "own"), "--json")
    assert answer.code == 0, answer
    report = json.loads(answer.out)
    return report["cells"], report["effects"], [tally["outcomes"] for tally in report["tallies"]]


def count_events(shell, kind):
    folder = SweepFolder(shell.folder / "runs" / "own")
    with (
        suppress(StoreError),
        Ledger.open(folder.ledger_url, "own") as ledger,
    ):  # the launch may still be creating the ledger
        return sum(event.kind is kind for event in ledger.events())
    return 0


@pytest.mark.parametrize("form", ["torch", "workload"])
def test_killed_and_resumed_sweep_matches_an_undisturbed_sweep(tmp_path, haltsweep, form):
    undisturbed_shell, disturbed_shell = (
        shell_at(tmp_path / "calm", form),
        shell_at(tmp_path / "disturbed", form),
    )
    answer = undisturbed_shell.run("launch", "own.yaml", *QUICK)
    assert answer.code == 0, answer
    with disturbed_shell.started("launch", "own.yaml", *QUICK) as process:
        wait_for(lambda: count_events(disturbed_shell, EventKind.MEASURED) >= 3, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    answer = disturbed_shell.run("resume", "own", *QUICK)
    assert answer.code == 0, answer
    assert report_results(haltsweep, disturbed_shell) == report_results(haltsweep, undisturbed_shell)
    answer = undisturbed_shell.run("verify", "own")
    assert answer.code == 0, answer
