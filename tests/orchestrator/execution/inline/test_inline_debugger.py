"""`--driver inline --pdb` opens a debugger where a trial fails, and still records the end of the trial."""

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


def launch_with_debugger(tmp_path, monkeypatch, typed_lines, fault):
    """Return what the debugger prints for the typed lines, and the outcome of each arm's trial."""
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed_lines))
    monkeypatch.setattr(sys, "stdout", terminal)
    plan = make_plan([make_arm("fails", fault=fault), make_arm("works")], trials_per_arm=1, seeds=())
    folder = SweepFolder(tmp_path / "runs" / plan.name)
    run_sweep(plan, folder, Setup(tmp_path / "data", PATH), "", driver="inline", debug=True)
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        outcomes_by_arm = {
            trial_record.arm: trial_record.outcome for trial_record in records(ledger.events(), plan)
        }
    return terminal.getvalue(), outcomes_by_arm


@pytest.mark.parametrize(
    ("last_command", "outcomes"),
    [("continue", {"fails": "crashed", "works": "finished"}), ("quit", {"fails": "crashed"})],
)
def test_failed_trial_is_inspected_in_the_debugger(tmp_path, monkeypatch, last_command, outcomes):
    output, outcomes_by_arm = launch_with_debugger(
        tmp_path, monkeypatch, f"p self._step\nup\np self._step\n{last_command}\n", "raise"
    )
    assert "KeyError: 'a mistake of the workload'" in output
    assert "-> raise KeyError(" in output
    assert "-> self._fail()" in output, "one frame up must be the caller"
    assert output.count("(Pdb) 2") == 2
    assert outcomes_by_arm == outcomes


def test_divergence_opens_no_debugger(tmp_path, monkeypatch):
    output, outcomes_by_arm = launch_with_debugger(tmp_path, monkeypatch, "", "diverge")
    assert not output
    assert outcomes_by_arm == {"fails": "diverged", "works": "finished"}
