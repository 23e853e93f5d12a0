"""Checkpoints in external stores are complete or absent, verified, and limited to the newest two."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import InputError, StoreError
from orchestrator.execution.checkpoints import checkpoint_stores
from orchestrator.execution.checkpoints.checkpoint_index import ExternalCheckpoints
from orchestrator.execution.checkpoints.checkpoint_stores import ExternalStore, StoreUnreachable
from orchestrator.execution.checkpoints.checkpoint_uris import check_uri, sweep_uri
from orchestrator.execution.checkpoints.worker_checkpoints import CheckpointDamaged
from orchestrator.execution.trial.worker import Harness
from orchestrator.trials import OutcomeKind
from tests.support.specs.plans import SETTINGS
from tests.support.stores.failing_store import AWAY, PROTOCOL
from tests.support.stores.s3 import SECRET, s3_server
from tests.support.sweeps.workloads import PATH
from trainables.protocol import Job, Measurement

TRIAL = Path("somewhere/checkpoints/trial")


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as server:
        yield server


@pytest.fixture(params=["s3", "file"])
def store(request, tmp_path):
    uri = request.getfixturevalue("s3").uri if request.param == "s3" else f"file://{tmp_path}/store"
    return ExternalStore(sweep_uri(uri, "sweep"))


def write_checkpoint(store, step, trial=TRIAL, patience_s=0.0):
    def save(folder):
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "weights").write_bytes(b"w" * step * 1000)
        (folder / "empty").touch()

    return store.write(trial, Measurement(step, 0.5, {"valid/score": 0.25}), save, patience_s=patience_s).step


def checkpoint_steps(store, trial=TRIAL):
    return [checkpoint.step for checkpoint in store.complete(trial)]


def make_job(**fields):
    return Job({**SETTINGS, "train": {"steps": 6, "fault": None}}, seed=1, **fields)


def run_until(harness, step):
    while (reply := harness.advance()).measurement.step < step:
        pass
    return reply


def test_store_retains_the_newest_two_checkpoints_with_their_content(store):
    assert checkpoint_steps(store) == []
    assert [write_checkpoint(store, step) for step in (1, 2, 3)] == [1, 2, 3]
    checkpoints = list(store.complete(TRIAL))
    assert [checkpoint.step for checkpoint in checkpoints] == [3, 2]
    for checkpoint in checkpoints:
        assert checkpoint.measurement() == Measurement(checkpoint.step, 0.5, {"valid/score": 0.25})
        assert (checkpoint.state / "deep" / "er" / "weights").read_bytes() == b"w" * checkpoint.step * 1000
        assert (checkpoint.state / "empty").read_bytes() == b""


def test_unfinished_checkpoint_is_hidden_and_deleted_by_the_next_write(store, monkeypatch):
    write_checkpoint(store, 1)
    put = ExternalStore.put

    def fail_at_manifest(self, name, source):
        if name.endswith("checkpoint.json"):
            raise OSError("the line is cut")
        put(self, name, source)

    monkeypatch.setattr(ExternalStore, "put", fail_at_manifest)
    with pytest.raises(StoreUnreachable):
        write_checkpoint(store, 2)
    monkeypatch.undo()
    assert checkpoint_steps(store) == [1]
    assert store.names("trial") == {"step-000000001", "step-000000002"}
    write_checkpoint(store, 3)
    assert store.names("trial") == {"step-000000001", "step-000000003"}


def test_damaged_checkpoint_raises_an_error_and_the_older_one_is_readable(store, tmp_path):
    damaged_file = tmp_path / "damaged"
    damaged_file.write_text('{"state": ')
    write_checkpoint(store, 1)
    write_checkpoint(store, 2)
    (weights,) = [file for file in all_files(store) if file.endswith("weights") and "step-000000002" in file]
    store.put(weights, damaged_file)
    newest, older = store.complete(TRIAL)
    with pytest.raises(CheckpointDamaged):
        newest.measurement()
    assert older.measurement().step == 1
    store.put("trial/step-000000002/checkpoint.json", damaged_file)
    assert checkpoint_steps(store) == [1]


def all_files(store):
    """Return the paths of all files of a store, relative to its root."""
    files, root = store._connection
    return [path.removeprefix(f"{root}/") for path in files.find(root)]


def test_discard_deletes_only_the_named_trials(store):
    for name in ("a", "b", "c"):
        write_checkpoint(store, 1, Path(name))
    store.discard(["a", "b", "none"])
    assert [checkpoint_steps(store, Path(name)) for name in ("a", "b", "c")] == [[], [], [1]]
    store.delete("")
    assert checkpoint_steps(store, Path("c")) == []


def test_probe_leaves_no_files_and_detects_an_unusable_location(store, tmp_path):
    store.probe()
    assert list(all_files(store)) == []
    (tmp_path / "taken").touch()
    with pytest.raises(StoreError):
        ExternalStore(f"file://{tmp_path}/taken/below").probe()


def test_probe_of_a_missing_bucket_raises_an_error(s3):
    with pytest.raises(StoreError) as raised:
        ExternalStore(s3.uri.replace("bucket", "no-such-bucket")).probe()
    assert SECRET not in str(raised.value)


def test_trial_continues_from_the_store_on_another_machine(store, tmp_path):
    undisturbed = Harness(PATH, 0.0)
    undisturbed.start(make_job(phase="confirm"), tmp_path / "trial")
    first_harness = Harness(PATH, 0.0, store=store)
    first_harness.start(make_job(phase="confirm"), TRIAL)
    run_until(first_harness, 4)
    second_harness = Harness(PATH, 1e9, store=ExternalStore(store.uri))
    second_harness.start(make_job(phase="confirm"), Path("another/machine/trial"))
    assert second_harness.advance().measurement.step == 4
    last_reply = run_until(second_harness, 6)
    assert last_reply.checkpoint == 6
    assert last_reply.measurement == run_until(undisturbed, 6).measurement
    third_harness = Harness(PATH, store=ExternalStore(store.uri))
    third_harness.start(make_job(phase="posthoc", source=Path("trial/step-000000006")), Path("reevaluation"))
    assert third_harness.advance().measurement.step == 6
    assert not Path("another").exists()


def test_search_trial_stores_no_last_checkpoint(store):
    harness = Harness(PATH, 1e9, store=store)
    harness.start(make_job(), TRIAL)
    reply = run_until(harness, 6)
    assert (reply.checkpoint, reply.ended.kind) == (None, OutcomeKind.FINISHED)
    assert checkpoint_steps(store) == []


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://key:{SECRET}@bucket/folder",
        f"s3://{SECRET}@bucket/folder",
        f"abfs://container/folder?account_key={SECRET}",
        f"s3://bucket/folder?region=x&X-Amz-Security-Token={SECRET}",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_printed(uri):
    with pytest.raises(InputError) as raised:
        check_uri(uri)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "uri", ["nonsense://bucket/folder", "some/folder", "memory://folder", "file://some/folder"]
)
def test_unknown_file_systems_and_places_of_one_process_are_refused(uri):
    with pytest.raises(InputError):
        check_uri(uri)


@pytest.mark.slow
def test_failed_upload_loses_a_checkpoint_but_not_the_trial(tmp_path):
    with s3_server(tmp_path / "log") as server:
        harness = Harness(PATH, 0.0, store=ExternalStore(server.uri))
        harness.start(make_job(), TRIAL)
        assert harness.advance().checkpoint == 1
        server.kill()
        reply = harness.advance()
        assert (reply.measurement.step, reply.checkpoint, reply.ended) == (2, None, None)
        assert run_until(harness, 6).ended.kind is OutcomeKind.FINISHED


class TestLibraryErrors:
    """The library of the store raises its own exceptions, for some operations or for all."""

    @pytest.fixture
    def store_folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr(checkpoint_stores.RETRYING, "sleep", lambda _: None)
        (tmp_path / "store").mkdir()
        return tmp_path / "store"

    @pytest.fixture
    def failing_store(self, store_folder):
        return ExternalStore(f"{PROTOCOL}://{store_folder}/sweep")

    @pytest.mark.parametrize("kind", ["LibraryError", "ConnectionError"])
    def test_each_operation_is_retried_after_any_exception(self, failing_store, store_folder, kind):
        for operation, expected in (
            (lambda: write_checkpoint(failing_store, 1, patience_s=60.0), 1),
            (lambda: checkpoint_steps(failing_store), [1]),
            (failing_store.probe, None),
            (lambda: failing_store.clear_unfinished(TRIAL), None),
            (lambda: failing_store.discard(["trial"]), None),
            (lambda: checkpoint_steps(failing_store), []),
        ):
            (store_folder / AWAY).write_text(f"{kind} 3")
            assert operation() == expected

    def test_unreachable_store_is_not_treated_as_empty(self, store_folder):
        failing_store = ExternalStore(f"{PROTOCOL}://{store_folder}/sweep", patience_s=0.0)
        write_checkpoint(failing_store, 1)
        (store_folder / AWAY).write_text("LibraryError")
        harness = Harness(PATH, store=failing_store)
        harness.start(make_job(), TRIAL)
        with pytest.raises(StoreUnreachable):
            harness.advance()
        (store_folder / AWAY).unlink()
        assert checkpoint_steps(failing_store) == [1]

    def test_failed_deletion_is_logged_and_ends_nothing(self, store_folder, monkeypatch, caplog):
        monkeypatch.setattr(checkpoint_stores, "COMMAND_PATIENCE_S", 0.0)
        uri = f"{PROTOCOL}://{store_folder}/sweep"
        store, recorder_store = ExternalStore(uri), ExternalCheckpoints(uri)
        write_checkpoint(store, 1, Path("a"))
        write_checkpoint(store, 1, Path("b"))
        (store_folder / AWAY).write_text("LibraryError 1")
        recorder_store.discard(["a"])
        recorder_store.discard(["b"])
        recorder_store.close()
        assert [checkpoint_steps(store, Path(name)) for name in ("a", "b")] == [[1], []]
        assert f"{uri} " in caplog.text


def test_ended_process_leaves_no_temporary_copies(tmp_path):
    code = (
        "import sys; from pathlib import Path;"
        "from orchestrator.execution.checkpoints.checkpoint_stores import ExternalStore;"
        "from trainables.protocol import Measurement;"
        "ExternalStore(sys.argv[1]).write(Path('checkpoints/trial'),"
        "Measurement(1, 0.5, {}), lambda folder: (folder / 'weights').touch())"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    subprocess.run(
        [sys.executable, "-c", code, f"file://{tmp_path}/store"],
        env={**os.environ, "TMPDIR": str(temporary)},
        check=True,
    )
    assert list((tmp_path / "store").iterdir())
    assert not list(temporary.iterdir())
