"""Checkpoints elsewhere: complete or absent, checked, the newest two, on every kind of file system."""

import os
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from orchestrator.errors import InputError, StoreError
from orchestrator.execution.checkpoints import checkpoint_stores
from orchestrator.execution.checkpoints.checkpoint_index import ExternalCheckpoints
from orchestrator.execution.checkpoints.checkpoint_stores import ExternalStore, StoreUnreachable
from orchestrator.execution.checkpoints.checkpoint_uris import check_uri, child_uri, sweep_uri
from orchestrator.execution.checkpoints.worker_checkpoints import CheckpointDamaged
from orchestrator.execution.inline import run_inline
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.worker import Harness
from orchestrator.identity import SweepFolder
from orchestrator.ledger.fold import records
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.trials import OutcomeKind
from tests.support.specs.plans import SETTINGS, make_plan
from tests.support.stores.failing_store import AWAY, PROTOCOL
from tests.support.stores.s3 import SECRET, s3_server
from tests.support.sweeps.workloads import PATH
from trainables.protocol import Job, Measurement

TRIAL = Path("somewhere/checkpoints/trial")


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as server:
        yield server


@pytest.fixture(params=["s3", "file", "memory"])
def store(request, tmp_path):
    if request.param == "s3":
        uri = request.getfixturevalue("s3").uri
    else:
        uri = f"file://{tmp_path}/store" if request.param == "file" else f"memory://{uuid.uuid4().hex}/store"
    made = ExternalStore(sweep_uri(uri, "sweep"))
    yield made
    made.close()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(checkpoint_stores, "PATIENCE_S", 0.0)


def write(store, step, trial=TRIAL):
    def save(folder):
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "weights").write_bytes(b"w" * step * 1000)
        (folder / "empty").touch()

    return store.write(trial, Measurement(step, 0.5, {"valid/score": 0.25}), save)


def steps(store, trial=TRIAL):
    return [each.step for each in store.complete(trial)]


def job(**more):
    return Job({**SETTINGS, "train": {"steps": 6, "fault": None}}, seed=1, **more)


def run_to(harness, step):
    while (reply := harness.advance()).measurement.step < step:
        pass
    return reply


def test_the_newest_two_are_kept_and_hold_what_was_written(store):
    assert [write(store, step) for step in (1, 2, 3)] == [1, 2, 3]
    found = list(store.complete(TRIAL))
    assert [each.step for each in found] == [3, 2]
    for each in found:
        assert each.measurement() == Measurement(each.step, 0.5, {"valid/score": 0.25})
        assert (each.state / "deep" / "er" / "weights").read_bytes() == b"w" * each.step * 1000
        assert (each.state / "empty").read_bytes() == b""


def test_a_trial_without_checkpoints_has_none(store):
    assert steps(store) == []
    store.clear_unfinished(TRIAL)
    store.discard(["trial"])


def test_what_was_cut_off_before_its_manifest_is_absent_and_deleted_by_the_next(store, monkeypatch):
    write(store, 1)
    put = ExternalStore.put

    def cut_off(self, path, content):
        if path.endswith("checkpoint.json"):
            raise OSError("the line is cut")
        put(self, path, content)

    monkeypatch.setattr(ExternalStore, "put", cut_off)
    with pytest.raises(StoreUnreachable):
        write(store, 2)
    monkeypatch.undo()
    assert steps(store) == [1]
    assert store.entries(store._path("trial")).keys() == {"step-000000001", "step-000000002"}
    write(store, 3)
    assert store.entries(store._path("trial")).keys() == {"step-000000001", "step-000000003"}


def test_an_attempt_given_up_for_dead_does_not_spoil_what_its_successor_wrote(store, monkeypatch):
    write(store, 5)
    stale = ExternalStore(store.uri)
    monkeypatch.setattr(ExternalStore, "put", no_manifest)
    with pytest.raises(StoreUnreachable):
        stale.write(
            TRIAL, Measurement(5, 0.5, {}), lambda folder: (folder / "empty").write_bytes(b"of the stale one")
        )
    monkeypatch.undo()
    (found,) = store.complete(TRIAL)
    assert found.measurement().metrics == {"valid/score": 0.25}
    stale.close()


def no_manifest(store, path, content):
    raise OSError("the line is cut")


def test_damage_is_found_and_the_older_one_is_used(store):
    write(store, 1)
    write(store, 2)
    newest, older = store.complete(TRIAL)
    (weights,) = [each for each in everything(store) if each.endswith("weights") and "step-000000002" in each]
    store.put(weights, b"damaged")
    newest, older = store.complete(TRIAL)
    with pytest.raises(CheckpointDamaged):
        newest.measurement()
    assert older.measurement().step == 1
    store.put(store._path("trial", "step-000000002", "checkpoint.json"), b'{"state": ')
    assert steps(store) == [1]


def everything(store, folder=None):
    """Paths of all files of a store."""
    folder = folder or store._path()
    for name, is_folder in store.entries(folder).items():
        yield from everything(store, f"{folder}/{name}") if is_folder else [f"{folder}/{name}"]


def test_only_what_is_told_is_deleted(store):
    for name in ("a", "b", "c"):
        write(store, 1, Path(name))
    store.discard(["a", *(f"none-{number}" for number in range(20))])
    store.discard(["b"])
    assert [steps(store, Path(name)) for name in ("a", "b", "c")] == [[], [], [1]]
    store.discard_all()
    assert steps(store, Path("c")) == []
    store.discard_all()


def test_the_recorder_s_side_deletes_in_the_background(tmp_path):
    uri = f"file://{tmp_path}/store"
    store, recorders = ExternalStore(uri), ExternalCheckpoints(uri)
    write(store, 1, Path("a"))
    write(store, 1, Path("b"))
    recorders.discard(["a"])
    recorders.discard([])
    recorders.close()
    assert steps(store, Path("a")) == []
    assert steps(store, Path("b")) == [1]
    assert recorders.place("b", 1) == f"{uri}/b/step-000000001"
    store.close()


def test_a_place_is_tried_before_it_is_used(store, tmp_path):
    store.probe()
    assert list(everything(store)) == []
    (tmp_path / "taken").touch()
    with pytest.raises(StoreError):
        ExternalStore(f"file://{tmp_path}/taken/below").probe()


def test_a_bucket_that_is_not_there_is_refused(s3):
    with pytest.raises(StoreError) as raised:
        ExternalStore(s3.uri.replace("bucket", "no-such-bucket")).probe()
    assert SECRET not in str(raised.value)


def test_a_trial_goes_on_from_elsewhere_on_another_machine(store, impatient, tmp_path):
    undisturbed = Harness(PATH, 0.0)
    undisturbed.start(job(phase="confirm"), tmp_path / "trial")
    first = Harness(PATH, 0.0, store=store)
    first.start(job(phase="confirm"), TRIAL)
    run_to(first, 4)
    second = Harness(PATH, 1e9, store=ExternalStore(store.uri))
    second.start(job(phase="confirm"), Path("another/machine/trial"))
    assert second.advance().measurement.step == 4
    last = run_to(second, 6)
    assert last.checkpoint == 6
    assert last.measurement == run_to(undisturbed, 6).measurement
    third = Harness(PATH, store=ExternalStore(store.uri))
    third.start(job(phase="posthoc", source=Path("trial/step-000000006")), Path("reread"))
    assert third.advance().measurement.step == 6
    assert not Path("another").exists()


def test_a_search_s_last_checkpoint_is_not_sent(store):
    harness = Harness(PATH, 1e9, store=store)
    harness.start(job(), TRIAL)
    reply = run_to(harness, 6)
    assert (reply.checkpoint, reply.ended.kind) == (None, OutcomeKind.FINISHED)
    assert steps(store) == []


def test_a_posthoc_trial_without_its_checkpoint_says_so(store):
    harness = Harness(PATH, store=store)
    harness.start(job(phase="posthoc", source=Path("nobody/step-000000006")), TRIAL)
    ended = harness.advance().ended
    assert "its confirmed trial, and nobody/step-000000006 is not there" in ended.reason


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://key:{SECRET}@bucket/folder",
        f"s3://{SECRET}@bucket/folder",
        f"sftp://me:{SECRET}@host/folder",
        f"s3://bucket/folder?secret_key={SECRET}",
        f"abfs://container/folder?account_key={SECRET}",
        f"https://account.example/folder?sig={SECRET}",
        f"s3://bucket/folder?region=x&X-Amz-Security-Token={SECRET}",
    ],
)
def test_credentials_in_the_uri_are_refused_and_not_repeated(uri):
    with pytest.raises(InputError) as raised:
        check_uri(uri)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("uri", ["nonsense://bucket/folder", "some/folder", "s3:bucket", "", "s3://[bucket"])
def test_unknown_file_systems_are_refused(uri):
    with pytest.raises(InputError):
        check_uri(uri)


def test_names_go_before_the_query():
    assert child_uri("s3://bucket/folder/?region=x", "a", "b") == "s3://bucket/folder/a/b?region=x"
    assert child_uri("s3://bucket", "a") == "s3://bucket/a"
    assert child_uri("hdfs:///folder?replication=2", "a") == "hdfs:///folder/a?replication=2"
    assert child_uri("file:///", "a") == "file:///a"
    assert sweep_uri("file:///store", "name") != sweep_uri("file:///store", "name")


class TestOutage:
    """The server goes away."""

    @pytest.fixture
    def server(self, tmp_path):
        with s3_server(tmp_path / "log") as server:
            yield server

    @pytest.mark.slow
    def test_a_failing_upload_costs_a_checkpoint_and_not_the_trial(self, server):
        harness = Harness(PATH, 0.0, store=ExternalStore(server.uri))
        harness.start(job(), TRIAL)
        assert harness.advance().checkpoint == 1
        server.kill()
        reply = harness.advance()
        assert (reply.measurement.step, reply.checkpoint, reply.ended) == (2, None, None)
        reply = run_to(harness, 6)
        assert reply.ended.kind is OutcomeKind.FINISHED

    @pytest.mark.slow
    def test_a_trial_whose_store_is_away_does_not_begin_at_step_0(self, server, impatient):
        harness = Harness(PATH, 0.0, store=ExternalStore(server.uri))
        server.kill()
        harness.start(job(), TRIAL)
        with pytest.raises(StoreUnreachable):
            harness.advance()

    @pytest.mark.slow
    def test_a_store_that_answers_again_is_waited_for(self, server):
        store = ExternalStore(server.uri)
        write(store, 3)
        server.pause()
        threading.Timer(8, server.go_on).start()
        assert steps(store) == [3]


class TestLibraryErrors:
    """A store whose library has exceptions of its own goes away for some operations, or for good."""

    @pytest.fixture
    def place(self, tmp_path, monkeypatch):
        monkeypatch.setattr("orchestrator.execution.checkpoints.checkpoint_stores.time.sleep", lambda _: None)
        (tmp_path / "store").mkdir()
        return tmp_path / "store"

    @pytest.fixture
    def failing(self, place):
        made = ExternalStore(f"{PROTOCOL}://{place}/sweep")
        yield made
        made.close()

    @pytest.mark.parametrize("kind", ["LibraryError", "ConnectionError", "ValueError"])
    def test_each_operation_is_retried_whatever_it_raises(self, failing, place, kind):
        away = place / AWAY
        for step in (1, 2):
            away.write_text(f"{kind} 3")
            assert failing.write(TRIAL, Measurement(step, 0.5, {}), save_one, patience_s=60.0) == step
        away.write_text(f"{kind} 3")
        assert steps(failing) == [2, 1]
        away.write_text(f"{kind} 3")
        failing.probe()
        away.write_text(f"{kind} 3")
        failing.clear_unfinished(TRIAL)
        away.write_text(f"{kind} 3")
        failing.discard(["trial"])
        assert steps(failing) == []

    def test_a_store_that_is_away_is_not_empty(self, failing, place, impatient):
        write(failing, 1)
        for kind in ("LibraryError", "ConnectionError", "ValueError"):
            (place / AWAY).write_text(kind)
            harness = Harness(PATH, store=failing)
            harness.start(job(), TRIAL)
            with pytest.raises(StoreUnreachable):
                harness.advance()
        (place / AWAY).unlink()
        assert steps(failing) == [1]

    def test_a_deletion_that_fails_is_reported_and_ends_nothing(self, place, monkeypatch, caplog):
        monkeypatch.setattr(checkpoint_stores, "COMMAND_PATIENCE_S", 0.0)
        uri = f"{PROTOCOL}://{place}/sweep"
        store, recorders = ExternalStore(uri), ExternalCheckpoints(uri)
        write(store, 1, Path("a"))
        write(store, 1, Path("b"))
        (place / AWAY).write_text("LibraryError 1")
        recorders.discard(["a"])
        recorders.discard(["b"])
        recorders.close()
        assert [steps(store, Path(name)) for name in ("a", "b")] == [[1], []]
        assert "could not be deleted" in caplog.text
        store.close()

    def test_no_retry_for_what_a_retry_cannot_mend(self, place):
        calls = []

        def refuse():
            calls.append(1)
            raise PermissionError("not yours")

        with pytest.raises(StoreUnreachable):
            checkpoint_stores.retry_operation(refuse, 60.0, "failing://x")
        assert len(calls) == 1


def save_one(folder):
    (folder / "weights").write_bytes(b"w")


@pytest.mark.slow
def test_all_trials_finish_though_the_store_goes_away_for_seconds(tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    plan = make_plan(2, trials_per_arm=4, seeds=(7, 8))
    folder = SweepFolder(tmp_path / "synthetic")
    folder.root.mkdir()
    uri = f"{PROTOCOL}://{store}/sweep"
    away = store / AWAY

    def outages():
        for _ in range(3):
            away.write_text("LibraryError")
            time.sleep(2)
            away.unlink()
            time.sleep(2)

    thread = threading.Thread(target=outages)
    thread.start()
    with Ledger.open(folder.ledger_url, "synthetic", create=True) as ledger:
        lease = ledger.claim(Holder.current())
        recorder = Recorder(plan, ledger, lease, folder, checkpoints=ExternalCheckpoints(uri))
        run_inline(
            recorder,
            "tests.support.stores.failing_store:StoreUser",
            data_dir=tmp_path / "data",
            checkpoint_seconds=0.0,
            checkpoints=uri,
        )
        recorder.close()
        ended = [each.outcome for each in records(ledger.events(), plan)]
    thread.join()
    assert ended == [OutcomeKind.FINISHED] * 12


def test_a_process_that_ends_leaves_no_copies(tmp_path):
    program = (
        "import sys; from pathlib import Path;"
        "from orchestrator.execution.checkpoints.checkpoint_stores import ExternalStore;"
        "from trainables.protocol import Measurement;"
        "ExternalStore(sys.argv[1]).write(Path('checkpoints/trial'),"
        "Measurement(1, 0.5, {}), lambda folder: (folder / 'weights').touch())"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    subprocess.run(
        [sys.executable, "-c", program, f"file://{tmp_path}/store"],
        env={**os.environ, "TMPDIR": str(temporary)},
        check=True,
    )
    assert list((tmp_path / "store").iterdir())
    assert not list(temporary.iterdir())
