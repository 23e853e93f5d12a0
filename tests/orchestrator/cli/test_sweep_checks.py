"""Checks of a sweep whose task or snapshot is missing or damaged."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.cli.sweep_checks import check_data, check_snapshot
from orchestrator.execution.sweep.launch_folder import DEFAULT_WORKLOAD
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.sweep.sweep_fold import SweepFold
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from tests.support.specs.plans import make_plan
from tests.support.sweeps.driving import run_in_turn


@pytest.mark.parametrize("task", [{"name": "gone"}, {"name": "listops", "of_another_version": 1}])
def test_data_of_a_missing_task_are_reported_as_unknown(task: dict[str, Any]) -> None:
    sweep: Any = SimpleNamespace(
        setup=SimpleNamespace(workload=DEFAULT_WORKLOAD, data_dir=None),
        plan=SimpleNamespace(test_splits=(), arms=[SimpleNamespace(settings={"task": task})]),
        records=[],
    )
    (finding,) = check_data(sweep, lambda _: None)
    assert finding.verdict == "unknown"


def test_snapshot_is_compared_with_all_events(tmp_path: Path) -> None:
    plan, folder = make_plan(2), SweepFolder(tmp_path)
    with Ledger.open(folder.ledger_url, plan.name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        recorder = Recorder(plan, ledger, lease, folder, snapshots=ledger, snapshot_every=1)
        run_in_turn(recorder)
        recorder.close()
        snapshot = ledger.snapshot()
        sweep: Any = SimpleNamespace(folder=folder, plan=plan, ledger=ledger)
        contents = {"sound": snapshot.content, "damaged": SweepFold(plan).content()}
        for verdict, content in contents.items():
            ledger.save_snapshot(replace(snapshot, seq=ledger.last_seq(), content=content), lease)
            assert [finding.verdict for finding in check_snapshot(sweep)] == [verdict]
