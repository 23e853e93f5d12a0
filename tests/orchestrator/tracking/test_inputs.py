"""Which data runs read: a list in the sweep's folder, datasets of MLflow's runs, and verify."""

from typing import Any

import pytest

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder, digest
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.tracking.inputs import Input, inputs_for, read_inputs, write_inputs
from orchestrator.tracking.mlflow.desired_runs import DesiredRuns
from orchestrator.tracking.mlflow.mlflow_check import compare
from orchestrator.tracking.mlflow.mlflow_reading import read_runs
from orchestrator.tracking.summary import ArmSummary
from orchestrator.tracking.sync import sync
from tests.support.sweeps.histories import begun, history

READ = (
    Input("synthetic/train", "0" * 32, "train", "synthetic/0/train.arrow"),
    Input("synthetic/valid", "1" * 32, "valid", "synthetic/0/valid.arrow"),
    Input("synthetic/test", "2" * 32, "test", "synthetic/0/test.arrow"),
)


def test_runs_have_their_datasets_and_verify_checks_them(
    folder: SweepFolder, ledger: Ledger, uri: str, plan: Plan
) -> None:
    lease = ledger.claim(Holder.current())
    ledger.append(list(history(plan, 1)), lease)
    ledger.release(lease)
    sync(folder, ledger, uri)  # before there was a list
    inputs = {digest(plan.arms[0].settings["task"]): READ}

    def verdicts(**known: Any) -> list[str]:
        desired = DesiredRuns(plan, ledger.uid, **known)
        for event in ledger.events():
            desired.hear(event)
        desired.hold(is_locked=False)
        kept = read_runs(uri, plan.name, ledger.uid)
        assert kept is not None
        return [each.verdict for each in compare(desired, kept, {}, is_final=False, sync="sync")]

    assert verdicts() == ["behind"], "curves come with a report"
    write_inputs(folder, inputs)
    assert read_inputs(folder) == inputs
    written = sync(folder, ledger, uri, ArmSummary({}))
    assert written.inputs == written.total - written.points > 0
    assert sync(folder, ledger, uri, ArmSummary({})).total == 0
    assert verdicts(inputs=inputs) == ["sound"]
    kept = {each.run.key: each.run.inputs for each in read_runs(uri, plan.name, ledger.uid) or ()}
    for trial in begun(plan):
        contexts = {context for _, _, context in kept[f"trial/{trial.trial_id}"]}
        assert contexts == {"train", "valid"} | ({"test"} if trial.phase != "search" else set())
    assert kept["arm/arm-0"] == {each[:3] for each in READ}
    other = {task: (*some[:2], some[2]._replace(digest="3" * 32)) for task, some in inputs.items()}
    assert set(verdicts(inputs=other)) >= {"damaged"}


def test_a_trial_has_the_test_splits_that_it_reads() -> None:
    task = {"name": "synthetic"}
    inputs = {digest(task): (*READ, Input("synthetic/long", "3" * 32, "test", "synthetic/0/long.arrow"))}
    for phase, splits, read in (
        ("posthoc", ("long",), "train valid long"),
        ("confirm", ("test", "long"), "train valid test long"),
        ("posthoc", None, "train valid test long"),
        ("confirm", (), "train valid"),
        ("search", ("long",), "train valid"),
    ):
        found = inputs_for(inputs, {"task": task}, phase, splits)
        assert [each.name.rpartition("/")[2] for each in found] == read.split(), (phase, splits)


def test_a_damaged_list_of_data_is_reported_and_a_missing_list_is_empty(folder: SweepFolder) -> None:
    assert read_inputs(folder) == {}
    write_inputs(folder, {"task": READ})
    file = folder.root / "data.json"
    file.write_bytes(file.read_bytes().replace(b"0000", b"0001", 1))
    with pytest.raises(StoreError, match=r"data\.json"):
        read_inputs(folder)
