"""Workers of the Ray driver are reused, with a process for each trial."""

import threading
import time
from dataclasses import replace

import pytest

from orchestrator.errors import ExecutorError, InputError
from orchestrator.execution.ray.node_check import node_requirements
from orchestrator.execution.session import Session
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.execution.trial.trial_jobs import JobEncoder
from orchestrator.ledger.events import EventKind
from orchestrator.spec.section import Resources
from tests.support.processes.logs import MemoryLog, record
from tests.support.ray.connection import private_ray
from tests.support.ray.ray_workloads import PROCESS_FACTS
from tests.support.specs.plans import make_plan
from tests.support.sweeps.workloads import PATH

TRIALS = 2


@pytest.fixture(scope="module")
def ray_folder(tmp_path_factory):
    """Start a Ray with two CPUs; yield a folder for Tune."""
    with private_ray(2):
        yield tmp_path_factory.mktemp("scratch")


@pytest.mark.slow
def test_each_trial_has_a_process_with_its_threads_below_a_reused_worker(ray_folder, tmp_path):
    from orchestrator.execution.ray.tune import run_session

    log = MemoryLog()
    plan = make_plan(1, trials_per_arm=TRIALS, seeds=(), resources=Resources(cpus=2))
    recorder = record(plan, log, root=tmp_path / "sweep")
    encoder = JobEncoder(PROCESS_FACTS, 1000.0, 2, 0, tmp_path / "data")
    run_session(Session(recorder, threading.Event()), encoder, ray_folder, lambda: 1)
    assert recorder.finished
    facts = [event.payload["metrics"] for event in log.of(EventKind.MEASURED)]
    assert len({fact["worker/pid"] for fact in facts}) == TRIALS
    assert len({fact["worker/server"] for fact in facts}) == 1
    assert {fact["worker/threads"] for fact in facts} == {2.0}
    assert {fact["worker/omp"] for fact in facts} == {2.0}
    assert {fact["worker/ray"] for fact in facts} == {0.0}, "trials must not load Ray"
    assert {fact["worker/devices"] for fact in facts} == {0.0}
    assert all(fact["worker/file_of_launch_folder"] for fact in facts)


@pytest.mark.slow
def test_nodes_take_trials_after_their_check(ray_folder, tmp_path):
    from orchestrator.execution.ray.cluster import slot_counter
    from orchestrator.execution.ray.nodes import Nodes

    needs = node_requirements(make_plan(), Setup(tmp_path, PATH, checkpoints=f"file://{tmp_path}"))
    with pytest.raises(InputError):
        slot_counter(Resources(cpus=3))
    too_large = Nodes(needs, Resources(cpus=3), pytest.fail)
    assert slot_counter(Resources(cpus=3), too_large)() == 1, "a request must make the cluster grow"
    nodes = Nodes(needs, Resources(cpus=1), pytest.fail)
    count = slot_counter(Resources(cpus=1), nodes)
    assert (count(), nodes.is_checking, len(nodes.excluded_nodes)) == (0, True, 1)
    wait_until(lambda: count() == 2)
    assert (nodes.is_checking, nodes.excluded_nodes) == (False, ())


@pytest.mark.slow
def test_cluster_without_a_suitable_node_is_refused(ray_folder, tmp_path):
    from orchestrator.execution.ray.nodes import Nodes

    needs = node_requirements(make_plan(), Setup(tmp_path, PATH, checkpoints=f"file://{tmp_path}"))
    messages = []
    nodes = Nodes(replace(needs, code={"haltsweep": "other"}), Resources(cpus=1), messages.append)
    with pytest.raises(ExecutorError):
        wait_until(lambda: nodes.look() > 0)
    assert len(messages) == 1
    with pytest.raises(InputError):
        Nodes(replace(needs, code={"haltsweep": "other"}), Resources(cpus=1)).require_fit()
    Nodes(needs, Resources(cpus=1)).require_fit()


@pytest.mark.slow
def test_trial_moves_from_a_node_without_the_folder(ray_folder, tmp_path, monkeypatch):
    from orchestrator.execution.ray.tune import run_session

    mark, reassigned = tmp_path / "mark", []
    original_reassign = Session.reassign

    def record_reassigned(session, key):
        reassigned.append(key)
        mark.write_text("nonce")  # now the folder is visible
        original_reassign(session, key)

    monkeypatch.setattr(Session, "reassign", record_reassigned)
    log = MemoryLog()
    recorder = record(make_plan(1, trials_per_arm=2, seeds=()), log, root=tmp_path / "sweep")
    encoder = JobEncoder(PROCESS_FACTS, 1000.0, 1.0, 0.0, tmp_path / "data", mark=(str(mark), "nonce"))
    run_session(Session(recorder, threading.Event()), encoder, ray_folder, lambda: 1)
    assert reassigned
    assert [event.payload["kind"] for event in log.of(EventKind.ENDED)] == ["finished"] * 2
    assert len(log.of(EventKind.STARTED)) == 2


def wait_until(condition):
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)
