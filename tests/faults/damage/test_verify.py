"""`haltsweep verify` names every kind of damage, writes nothing, and reports no damage of an intact sweep."""

import json
import os
import random
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli import sweep_checks
from orchestrator.cli.commands.track import publish, write_report
from orchestrator.cli.commands.verify import check_sweep
from orchestrator.cli.stored_sweep import open_stored_sweep
from orchestrator.execution.sweep.launch_folder import Setup, read_setup
from orchestrator.execution.sweep.launch_folder import create_sweep_folder as publish_folder
from orchestrator.files.findings import BAD, Finding
from orchestrator.identity import SweepFolder
from orchestrator.ledger.fold import records
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import read_plan
from orchestrator.tracking import projections
from tests.faults.kills.chaos import KillableSweep, launch_or_resume
from tests.support.processes.commands import Shell, tree
from tests.support.specs.plans import make_arm, make_plan
from tests.support.stores.flips import flip, flip_random_bit
from tests.support.sweeps.histories import history

FLIPS = 3


def finished_sweep(root: Path, **arm: object) -> KillableSweep:
    """Run a sweep that has every kind of stored file."""
    plan = make_plan([make_arm("one", **arm)], trials_per_arm=2, seeds=(7,))
    sweep = KillableSweep(root, plan, f"sqlite:///{root / 'runs' / 'mlflow.db'}")
    assert launch_or_resume(sweep).exit_code == 0
    update_projections(sweep)
    return sweep


def update_projections(sweep: KillableSweep) -> None:
    with open_stored_sweep(str(sweep.folder.root), sweep.folder.root.parent) as stored_sweep:
        publish(stored_sweep, write_report(stored_sweep), str(sweep.tracking_uri))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> KillableSweep:
    return finished_sweep(tmp_path_factory.mktemp("verified"))


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projections.RETRYING, "sleep", lambda _: None)
    monkeypatch.setattr(sweep_checks.RETRYING, "sleep", lambda _: None)


def verify(sweep_folder: SweepFolder) -> list[Finding]:
    return list(check_sweep(sweep_folder))


def bad_findings(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.verdict in BAD]


def test_intact_sweep_is_sound_and_nothing_is_written(sweep: KillableSweep) -> None:
    earlier_state = tree(sweep.root)
    findings = verify(sweep.folder)
    assert {finding.what: finding.verdict for finding in findings} == {
        "files": "sound",
        "report": "sound",
        "ledger": "sound",
        "checkpoints": "sound",
        "data": "absent",
        "parquet": "sound",
        "mlflow": "sound",
    }
    assert not any(finding.remedy for finding in findings if finding.verdict == "sound")
    assert tree(sweep.root) == earlier_state


def stored_files(sweep: KillableSweep) -> list[Path]:
    root = sweep.folder.root
    (checkpoint, *_) = sorted(sweep.folder.checkpoint_folder.rglob("checkpoint.json"))
    (state, *_) = sorted(sweep.folder.checkpoint_folder.rglob("state/*"))
    names = ("spec.yaml", "plan.json", "launch.json", "provenance.json", "manifest.json")
    return [
        *(root / name for name in names),
        *sorted(sweep.folder.report.iterdir()),
        checkpoint,
        state,
        sweep.folder.records,
        *sweep.folder.measurements.iterdir(),
    ]


def open_checked_sweep(sweep: KillableSweep, ledger: Ledger) -> sweep_checks.CheckedSweep:
    plan, folder = read_plan(sweep.folder), sweep.folder
    return sweep_checks.CheckedSweep(folder, plan, read_setup(folder), ledger, records(ledger.events(), plan))


def verify_file(sweep: KillableSweep, file: Path) -> Iterator[Finding]:
    """Check the part of a sweep that contains `file`."""
    if sweep.folder.report in file.parents:
        yield from sweep_checks.check_report(sweep.folder)
    elif file.parent == sweep.folder.root and file.suffix != ".parquet":
        yield from sweep_checks.check_files(sweep.folder)
    else:
        with Ledger.open(sweep.folder.ledger_url, sweep.plan.name) as ledger:
            yield from sweep_checks.check_checkpoints(open_checked_sweep(sweep, ledger), lambda _: None)
            yield from sweep_checks.check_parquet(open_checked_sweep(sweep, ledger))


def test_verify_names_the_file_of_any_flipped_bit(sweep: KillableSweep) -> None:
    stream = random.Random(0)
    for file in stored_files(sweep):
        mlflow_content = file.read_bytes()
        for _ in range(FLIPS):
            bit = flip_random_bit(file, stream)
            faults = bad_findings(list(verify_file(sweep, file)))
            if mlflow_content.rstrip() != file.read_bytes().rstrip():
                assert len(faults) == 1, f"bit {bit} of {file}: {faults}"
                assert faults[0].remedy or "backup" in faults[0].detail, faults
                expected_name = file.name if "state" not in file.parts else file.parents[1].name
                assert expected_name in faults[0].detail
            file.write_bytes(mlflow_content)
    assert bad_findings(verify(sweep.folder)) == []


@pytest.mark.parametrize("replacement", ["nothing", "a pipe"])
def test_missing_file_is_named_and_a_pipe_does_not_block(sweep: KillableSweep, replacement: str) -> None:
    for file in stored_files(sweep):
        if file == sweep.folder.plan:
            continue  # without plan.json the folder is no sweep
        mlflow_content = file.read_bytes()
        file.unlink()
        if replacement == "a pipe":
            os.mkfifo(file)
        signal.alarm(60)  # ends the tests if a read blocks
        faults = bad_findings(list(verify_file(sweep, file)))
        signal.alarm(0)
        is_optional = (
            replacement == "nothing" and file.suffix == ".parquet"
        )  # a missing Parquet file is written later
        assert len(faults) == (not is_optional), (file, faults)
        file.unlink(missing_ok=True)
        file.write_bytes(mlflow_content)
    assert bad_findings(verify(sweep.folder)) == []


def test_unreadable_ledger_is_one_fault(sweep: KillableSweep) -> None:
    mlflow_content = sweep.folder.ledger.read_bytes()
    flip(sweep.folder.ledger, 8 * 20)
    sweep.folder.ledger.write_bytes(mlflow_content[:100])
    findings = verify(sweep.folder)
    assert [finding.what for finding in bad_findings(findings)] == ["ledger"]
    sweep.folder.ledger.write_bytes(mlflow_content)
    assert bad_findings(verify(sweep.folder)) == []


def test_trials_missing_from_the_plan_are_reported(tmp_path: Path) -> None:
    plan = make_plan([make_arm("one")], trials_per_arm=1, seeds=(7,))
    folder = SweepFolder(tmp_path / "runs" / plan.name)
    publish_folder(replace(plan, trials=plan.trials[:1]), folder, "", {}, Setup(tmp_path / "data"))
    with Ledger.open(folder.ledger_url, plan.name, create=True) as ledger:
        ledger.append(list(history(plan)), ledger.claim(Holder.current()))
    details = [str(finding) for finding in bad_findings(verify(folder)) if finding.what == "ledger"]
    assert len(details) >= 1
    assert plan.trials[1].trial_id in details[0]


DAMAGES = {
    "value": ("update metrics set value = value + 1 where key = 'valid/score' and step = 2", "valid/score"),
    "param": ("update params set value = '8' where key = 'seed'", "seed .*'8'"),
    "tag": ("update tags set value = 'pruned' where key = 'haltsweep.outcome'", "haltsweep.outcome"),
    "status": ("update runs set status = 'RUNNING'", "RUNNING.*FINISHED"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_verify_names_differences_in_mlflow(sweep: KillableSweep, name: str) -> None:
    statement, text = DAMAGES[name]
    database = sweep.root / "runs" / "mlflow.db"
    mlflow_content = database.read_bytes()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(statement)
        connection.commit()
        connection.execute("pragma wal_checkpoint(truncate)")
    with Ledger.open(sweep.folder.ledger_url, sweep.plan.name) as ledger:
        findings = list(sweep_checks.check_mlflow(open_checked_sweep(sweep, ledger), lambda _: None))
    assert bad_findings(findings), findings
    assert all(finding.remedy for finding in findings)
    assert any(re.search(text, finding.detail) for finding in findings)
    database.write_bytes(mlflow_content)


@pytest.mark.slow
def test_verify_reports_damage_and_repairs_a_plan(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path, tracked=True)
    assert shell.run("launch", "tiny.yaml", "--profile", "short", "--driver", "inline").code == 0
    root = shell.folder / "runs" / "tiny"
    open_checked_sweep = shell.run("verify", "tiny")
    assert open_checked_sweep.code == 0, open_checked_sweep
    assert len(re.findall("^data +sound ", open_checked_sweep.out, re.MULTILINE)) == 3
    plan = (root / "plan.json").read_bytes()
    flip(root / "plan.json", 8 * 100)
    (data,) = (shell.folder / "data").rglob("near-iid.arrow")
    flip(data, 8 * 1000)
    for command in (("status", "tiny"), ("resume", "tiny", "--driver", "inline")):
        refused_command = shell.run(*command)
        assert refused_command.code == 1
        assert "--repair`" in refused_command.err
        assert "Traceback" not in refused_command.err
    repaired = shell.run("verify", "tiny", "--repair", "--json")
    assert (root / "plan.json").read_bytes() == plan
    answer = json.loads(repaired.out[repaired.out.index("{") :])
    assert not answer["sound"]
    assert repaired.code == 1
    damaged_findings = [finding for finding in answer["findings"] if finding["verdict"] == "damaged"]
    assert [(finding["what"], str(data) in finding["detail"]) for finding in damaged_findings] == [
        ("data", True)
    ]
    assert shell.run("verify", "tony").code == 2
