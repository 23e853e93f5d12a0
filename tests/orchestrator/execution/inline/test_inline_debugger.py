"""`--driver inline --pdb`: a debugger where a trial fails, and a record of its end all the same."""

import io
import sys

import pytest

from orchestrator.execution.sweep.launch import run_sweep
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.identity import SweepFolder
from orchestrator.ledger.fold import records
from orchestrator.ledger.store import Ledger
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.workloads import PATH


def launched(tmp_path, monkeypatch, typed, fault):
    """What the debugger shows when this is typed, and the outcome of each arm's trial."""
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    monkeypatch.setattr(sys, "stdout", terminal)
    plan = make_plan([make_arm("fails", fault=fault), make_arm("works")], trials_per_arm=1, seeds=())
    folder = SweepFolder(tmp_path / "runs" / plan.name)
    run_sweep(plan, folder, Setup(tmp_path / "data", PATH), "", driver="inline", debug=True)
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        ended = {each.arm: each.outcome for each in records(ledger.events(), plan)}
    return terminal.getvalue(), ended


@pytest.mark.parametrize(
    ("left_by", "outcomes"),
    [("continue", {"fails": "crashed", "works": "finished"}), ("quit", {"fails": "crashed"})],
)
def test_a_failed_trial_can_be_looked_at_where_it_failed(tmp_path, monkeypatch, left_by, outcomes):
    shown, ended = launched(tmp_path, monkeypatch, f"p self._step\nup\np self._step\n{left_by}\n", "raise")
    assert "KeyError: 'a mistake of the workload'" in shown
    assert "-> raise KeyError(" in shown
    assert "-> self._fail()" in shown, "one frame up is who called"
    assert shown.count("(Pdb) 2") == 2
    assert ended == outcomes


def test_a_divergence_is_no_mistake_to_look_at(tmp_path, monkeypatch):
    shown, ended = launched(tmp_path, monkeypatch, "", "diverge")
    assert not shown
    assert ended == {"fails": "diverged", "works": "finished"}
