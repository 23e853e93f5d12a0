"""`haltsweep verify`: every kind of damage is named, nothing is written, nothing sound is called damaged."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
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
from orchestrator.execution.sweep.launch_folder import publish as publish_folder
from orchestrator.files.findings import BAD, Finding
from orchestrator.identity import SweepFolder
from orchestrator.ledger.fold import records
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import read_plan
from orchestrator.tracking.mlflow.mlflow_reading import read_runs
from orchestrator.tracking.projections import Projections
from tests.faults.kills.chaos import Place, _session, go
from tests.support.processes.commands import COMMAND, Shell, tree
from tests.support.processes.forks import forks
from tests.support.specs.plans import make_arm, make_plan
from tests.support.stores.flips import flip, flip_any
from tests.support.sweeps.histories import history

FLIPS = 8


def made(root: Path, **arm: object) -> Place:
    """A sweep with everything that sweeps keep."""
    plan = make_plan([make_arm("one", **arm)], trials_per_arm=2, seeds=(7,))
    place = Place(root, plan, f"sqlite:///{root / 'runs' / 'mlflow.db'}")
    assert go(place).exit_code == 0
    brought_up_to_date(place)
    return place


def brought_up_to_date(place: Place) -> None:
    with open_stored_sweep(str(place.folder.root), place.folder.root.parent) as sweep:
        publish(sweep, write_report(sweep), str(place.tracking_uri))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return made(tmp_path_factory.mktemp("verified"))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.tracking.projections.TRIES", 1)
    monkeypatch.setattr(sweep_checks, "TRIES", 1)


def reported(folder: SweepFolder) -> list[Finding]:
    return list(check_sweep(folder))


def faults(found: list[Finding]) -> list[Finding]:
    return [each for each in found if each.verdict in BAD]


def test_a_whole_sweep_is_sound_and_nothing_is_written(place: Place) -> None:
    before = tree(place.root)
    found = reported(place.folder)
    assert {each.what: each.verdict for each in found} == {
        "files": "sound",
        "report": "sound",
        "ledger": "sound",
        "checkpoints": "sound",
        "data": "absent",
        "parquet": "sound",
        "mlflow": "sound",
    }
    assert not any(each.remedy for each in found if each.verdict == "sound")
    assert tree(place.root) == before


def kept_files(place: Place) -> list[Path]:
    root = place.folder.root
    (checkpoint, *_) = sorted(place.folder.checkpoints.rglob("checkpoint.json"))
    (state, *_) = sorted(place.folder.checkpoints.rglob("state/*"))
    names = ("spec.yaml", "plan.json", "launch.json", "provenance.json", "manifest.json")
    return [
        *(root / name for name in names),
        *sorted(place.folder.report.iterdir()),
        checkpoint,
        state,
        place.folder.records,
        *place.folder.measurements.iterdir(),
    ]


def whole(place: Place, ledger: Ledger) -> sweep_checks.CheckedSweep:
    plan, folder = read_plan(place.folder), place.folder
    return sweep_checks.CheckedSweep(folder, plan, read_setup(folder), ledger, records(ledger.events(), plan))


def checked(place: Place, file: Path) -> Iterator[Finding]:
    """The part of a sweep that a file belongs to."""
    if place.folder.report in file.parents:
        yield from sweep_checks.check_report(place.folder)
    elif file.parent == place.folder.root and file.suffix != ".parquet":
        yield from sweep_checks.check_files(place.folder)
    else:
        with Ledger.open(place.folder.ledger_url, place.plan.name) as ledger:
            yield from sweep_checks.check_checkpoints(whole(place, ledger), lambda _: None)
            yield from sweep_checks.check_parquet(whole(place, ledger))


def test_any_bit_of_any_file_is_found_and_the_file_named(place: Place) -> None:
    stream = random.Random(0)
    for file in kept_files(place):
        sound = file.read_bytes()
        for _ in range(FLIPS):
            bit = flip_any(file, stream)
            bad = faults(list(checked(place, file)))
            if sound.rstrip() != file.read_bytes().rstrip():
                assert len(bad) == 1, f"bit {bit} of {file}: {bad}"
                assert bad[0].remedy or "backup" in bad[0].detail, bad
                inside = file.name if "state" not in file.parts else file.parents[1].name
                assert inside in bad[0].detail
            file.write_bytes(sound)
    assert faults(reported(place.folder)) == []


@pytest.mark.parametrize("instead", ["nothing", "a pipe"])
def test_a_file_that_is_gone_is_named_and_a_pipe_not_waited_for(place: Place, instead: str) -> None:
    for file in kept_files(place):
        if file == place.folder.plan:
            continue  # what makes a folder that of a sweep
        sound = file.read_bytes()
        file.unlink()
        if instead == "a pipe":
            os.mkfifo(file)
        signal.alarm(60)  # which ends the tests, where a read waits
        bad = faults(list(checked(place, file)))
        signal.alarm(0)
        later = instead == "nothing" and file.suffix == ".parquet"  # it may be made later
        assert len(bad) == (not later), (file, bad)
        file.unlink(missing_ok=True)
        file.write_bytes(sound)
    assert faults(reported(place.folder)) == []


def test_a_ledger_that_cannot_be_read_is_one_fault_and_the_rest_is_not_guessed(place: Place) -> None:
    sound = place.folder.ledger.read_bytes()
    flip(place.folder.ledger, 8 * 20)
    place.folder.ledger.write_bytes(sound[:100])
    found = reported(place.folder)
    assert [each.what for each in faults(found)] == ["ledger"]
    place.folder.ledger.write_bytes(sound)
    assert faults(reported(place.folder)) == []


def test_trials_that_the_plan_lacks_are_told(tmp_path: Path) -> None:
    plan = make_plan([make_arm("one")], trials_per_arm=1, seeds=(7,))
    folder = SweepFolder(tmp_path / "runs" / plan.name)
    publish_folder(replace(plan, trials=plan.trials[:1]), folder, "", {}, Setup(tmp_path / "data"))
    with Ledger.open(folder.ledger_url, plan.name, create=True) as ledger:
        ledger.append(list(history(plan)), ledger.claim(Holder.current()))
    found = [str(each) for each in faults(reported(folder)) if each.what == "ledger"]
    assert len(found) >= 1
    assert f"the plan lacks 1 trial of its ledger, such as {plan.trials[1].trial_id}" in found[0]


DAMAGES = {
    "value": ("update metrics set value = value + 1 where key = 'valid/score' and step = 2", "points of"),
    "lost": ("delete from metrics where key = 'train/chain' and step = 1", "points of train/chain differ"),
    "twice": (
        "insert into metrics select key, value, timestamp + 1, run_uuid, step, is_nan from metrics limit 99",
        "points of valid/cost differ",
    ),
    "param": ("update params set value = '8' where key = 'seed'", "parameter seed is '8', the ledger says"),
    "tag": ("update tags set value = 'pruned' where key = 'haltsweep.outcome'", "tag haltsweep.outcome is"),
    "parent": ("update tags set value = 'x' where key = 'mlflow.parentRunId'", "tag mlflow.parentRunId is"),
    "status": ("update runs set status = 'RUNNING'", "status is RUNNING, the ledger says FINISHED"),
    "mean": ("update latest_metrics set value = 7 where key like '%.n'", ""),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_differs_in_mlflow_is_named(place: Place, name: str) -> None:
    statement, text = DAMAGES[name]
    database = place.root / "runs" / "mlflow.db"
    sound = database.read_bytes()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(statement)
        connection.commit()
        connection.execute("pragma wal_checkpoint(truncate)")
    with Ledger.open(place.folder.ledger_url, place.plan.name) as ledger:
        found = list(sweep_checks.check_mlflow(whole(place, ledger), lambda _: None))
    if text:
        assert faults(found), found
        assert all(each.remedy for each in found)
        assert any(text in each.detail for each in found)
    else:
        assert faults(found) == [], "MLflow's own cache is made from its metrics"
    database.write_bytes(sound)


def test_any_bit_of_mlflow_is_found_or_harmless(place: Place) -> None:
    stream, database = random.Random(2), place.root / "runs" / "mlflow.db"
    sound = database.read_bytes()
    with Ledger.open(place.folder.ledger_url, place.plan.name) as ledger:
        judged = whole(place, ledger)
        uri, uid = str(place.tracking_uri), ledger.uid
        before = content(uri, place.plan.name, uid)
        for _ in range(10):
            bit = flip_any(database, stream)
            bad = [
                each for each in sweep_checks.check_mlflow(judged, lambda _: None) if each.verdict != "sound"
            ]
            if not bad:
                assert content(uri, place.plan.name, uid) == before, f"bit {bit} went unnoticed"
            database.write_bytes(sound)


def content(uri: str, experiment: str, uid: str) -> object:
    kept = read_runs(uri, experiment, uid)
    assert kept is not None
    return sorted(
        (each.run.key, each.run.status, sorted(each.run.params.items()), sorted(each.histories.items()))
        for each in kept
    )


@pytest.mark.slow
def test_a_parquet_file_that_says_something_else_is_found(place: Place) -> None:
    """Whole, and in the list, but not of this ledger."""
    sound = {file: file.read_bytes() for file in place.folder.root.glob("*.*") if file.is_file()}
    other = made(Path(tempfile.mkdtemp(dir=place.root)), steps=3).folder.records.read_bytes()
    Projections(place.folder).put(place.folder.records, other)
    bad = faults(reported(place.folder))
    assert [(each.what, str(place.folder.records) in each.detail) for each in bad] == [("parquet", True)]
    for file, content_ in sound.items():
        file.write_bytes(content_)


@pytest.mark.slow
def test_a_running_sweep_is_sound_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.tracking.projections.TRIES", 20)
    monkeypatch.setattr(sweep_checks, "TRIES", 10)
    arms = [make_arm("one", sleep_s=0.15, steps=4)]
    place = Place(tmp_path, make_plan(arms, trials_per_arm=2, seeds=(7,)), f"sqlite:///{tmp_path}/mlflow.db")
    process = forks.Process(target=_session, args=(place, -1))
    process.start()
    looks = 0
    while process.is_alive():
        if not (place.folder.plan.exists() and place.folder.ledger.exists()):
            continue
        bad = [each for each in faults(reported(place.folder)) if "no sweep" not in each.detail]
        # The launcher may be about to make it.
        unmade = ("has no table", "is missing or empty")
        bad = [each for each in bad if each.what != "ledger" or not any(one in each.detail for one in unmade)]
        assert bad == []
        looks += 1
    process.join()
    assert looks > 0
    brought_up_to_date(place)
    assert faults(reported(place.folder)) == []


READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'


@pytest.mark.slow
def test_a_read_only_folder_can_be_verified(place: Place) -> None:
    before = tree(place.root)
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", READ_ONLY, "sh", str(place.root)]
    touch = [*command, "touch", str(place.root / "file")]
    tried = subprocess.run(touch, check=False, capture_output=True, text=True)
    assert "Read-only" in tried.stderr, f"this test needs a file system of its own: {tried.stderr}"
    verify = [sys.executable, "-m", "orchestrator.cli.main", "verify", str(place.folder.root), "--json"]
    shown = subprocess.run([*command, *verify], check=False, capture_output=True, text=True)
    assert shown.returncode == 0, shown
    found = json.loads(shown.stdout)["findings"]
    assert {each["verdict"] for each in found} == {"sound", "absent"}, found
    assert tree(place.root) == before


@pytest.mark.slow
def test_a_read_only_sweep_can_be_looked_at_and_is_not_told_as_damaged(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path, tracked=True)
    assert shell.run("launch", "tiny.yaml", "--profile", "short", "--driver", "inline").code == 0
    runs = shell.folder / "runs"
    before = tree(runs)
    locked = ["unshare", "--mount", "--map-root-user", "sh", "-c", READ_ONLY, "sh", str(runs), str(COMMAND)]
    for arguments, shown in (
        (("status", "tiny"), "tiny: finished; 4/4 ended"),
        (("list",), "finished"),
        (("logs", "tiny"), "no trial has failed"),
    ):
        answer = subprocess.run(
            [*locked, *arguments],
            cwd=shell.folder,
            env=shell.environment,
            check=False,
            capture_output=True,
            text=True,
        )
        assert answer.returncode == 0, answer
        assert shown in answer.stdout
        assert "damaged" not in answer.stdout
    assert tree(runs) == before


@pytest.mark.slow
def test_the_command_says_what_is_wrong_and_mends_a_plan(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path, tracked=True)
    assert shell.run("launch", "tiny.yaml", "--profile", "short", "--driver", "inline").code == 0
    root = shell.folder / "runs" / "tiny"
    whole = shell.run("verify", "tiny")
    assert whole.code == 0, whole
    assert whole.out.count("data        sound") == 3
    assert whole.out.endswith("tiny: sound\n")
    plan = (root / "plan.json").read_bytes()
    flip(root / "plan.json", 8 * 100)
    (data,) = (shell.folder / "data").rglob("near-iid.arrow")
    flip(data, 8 * 1000)
    for command in (("status", "tiny"), ("resume", "tiny", "--driver", "inline")):
        refused = shell.run(*command)
        assert refused.code == 1
        assert "--repair` makes it again from spec.yaml" in refused.err
        assert "Traceback" not in refused.err
    repaired = shell.run("verify", "tiny", "--repair", "--json")
    assert (root / "plan.json").read_bytes() == plan
    answer = json.loads(repaired.out[repaired.out.index("{") :])
    assert not answer["sound"]
    assert repaired.code == 1
    bad = [each for each in answer["findings"] if each["verdict"] == "damaged"]
    assert [(each["what"], str(data) in each["detail"]) for each in bad] == [("data", True)]
    assert shell.run("verify", "tony").code == 2
