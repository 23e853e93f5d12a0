"""Data of runs are listed in the sweep's folder and as MLflow datasets, and checked by verify."""

from typing import Any

import pytest

from orchestrator.errors import StoreError
from orchestrator.identity import digest
from orchestrator.tracking.inputs import Input, inputs_for, read_inputs, write_inputs
from orchestrator.tracking.mlflow.desired_runs import DesiredRuns
from orchestrator.tracking.mlflow.mlflow_check import compare
from orchestrator.tracking.mlflow.mlflow_reading import read_runs
from orchestrator.tracking.summary import ArmSummary
from orchestrator.tracking.sync import sync
from tests.orchestrator.tracking.conftest import append
from tests.support.sweeps.histories import begun, history

INPUTS = (
    Input("synthetic/train", "0" * 32, "train", "synthetic/0/train.arrow"),
    Input("synthetic/valid", "1" * 32, "valid", "synthetic/0/valid.arrow"),
    Input("synthetic/test", "2" * 32, "test", "synthetic/0/test.arrow"),
)


def test_runs_have_their_datasets_and_verify_checks_them(folder, ledger, uri, plan):
    append(ledger, history(plan, 1))
    sync(folder, ledger, uri)  # before the list exists
    inputs = {digest(plan.arms[0].settings["task"]): INPUTS}

    def verdicts(**options: Any) -> list[str]:
        desired = DesiredRuns(plan, ledger.uid, **options)
        for event in ledger.events():
            desired.apply(event)
        desired.set_locked(is_locked=False)
        stored_runs = read_runs(uri, plan.name, ledger.uid)
        assert stored_runs is not None
        return [finding.verdict for finding in compare(desired, stored_runs, {}, is_final=False, sync="sync")]

    assert verdicts() == ["behind"], "curves are written with the report"
    write_inputs(folder, inputs)
    assert read_inputs(folder) == inputs
    counts = sync(folder, ledger, uri, ArmSummary({}))
    assert counts.inputs == counts.total - counts.points > 0
    assert sync(folder, ledger, uri, ArmSummary({})).total == 0
    assert verdicts(inputs=inputs) == ["sound"]
    datasets = {stored.run.key: stored.run.inputs for stored in read_runs(uri, plan.name, ledger.uid) or ()}
    for trial in begun(plan):
        contexts = {context for _, _, context in datasets[f"trial/{trial.trial_id}"]}
        assert contexts == {"train", "valid"} | ({"test"} if trial.phase != "search" else set())
    assert datasets["arm/arm-0"] == {item[:3] for item in INPUTS}
    changed_inputs = {
        task: (*items[:2], items[2]._replace(digest="3" * 32)) for task, items in inputs.items()
    }
    assert set(verdicts(inputs=changed_inputs)) >= {"damaged"}


def test_trial_has_the_test_splits_that_it_reads():
    task = {"name": "synthetic"}
    inputs = {digest(task): (*INPUTS, Input("synthetic/long", "3" * 32, "test", "synthetic/0/long.arrow"))}
    for phase, splits, expected in (
        ("posthoc", ("long",), "train valid long"),
        ("confirm", ("test", "long"), "train valid test long"),
        ("posthoc", None, "train valid test long"),
        ("confirm", (), "train valid"),
        ("search", ("long",), "train valid"),
    ):
        trial_inputs = inputs_for(inputs, {"task": task}, phase, splits)
        assert [item.name.rpartition("/")[2] for item in trial_inputs] == expected.split(), (phase, splits)


def test_damaged_list_of_data_is_reported_and_a_missing_list_is_empty(folder):
    assert read_inputs(folder) == {}
    write_inputs(folder, {"task": INPUTS})
    file = folder.root / "data.json"
    file.write_bytes(file.read_bytes().replace(b"0000", b"0001", 1))
    with pytest.raises(StoreError, match=r"data\.json"):
        read_inputs(folder)
