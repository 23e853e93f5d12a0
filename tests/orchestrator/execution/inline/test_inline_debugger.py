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


@pytest.mark.parametrize(
    ("last_command", "outcomes"),
    [("continue", {"fails": "crashed", "works": "finished"}), ("quit", {"fails": "crashed"})],
)
def test_failed_trial_is_inspected_in_the_debugger(tmp_path, monkeypatch, last_command, outcomes):
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"p self._step\nup\np self._step\n{last_command}\n"))
    monkeypatch.setattr(sys, "stdout", terminal)
    plan = make_plan([make_arm("fails", fault="raise"), make_arm("works")], trials_per_arm=1, seeds=())
    folder = SweepFolder(tmp_path / "runs" / plan.name)
    run_sweep(plan, folder, Setup(tmp_path / "data", PATH), "", driver="inline", debug=True)
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        sweep_records = records(ledger.events(), plan)
    assert "-> raise KeyError(" in terminal.getvalue()
    assert terminal.getvalue().count("(Pdb) 2") == 2, "the debugger must print the step in two frames"
    assert {trial_record.arm: trial_record.outcome for trial_record in sweep_records} == outcomes
