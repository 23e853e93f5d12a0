"""Workers of the Ray driver: used again, with a process for each trial."""

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

TRIALS = 4


@pytest.fixture(scope="module")
def connected(tmp_path_factory):
    """A Ray with two CPUs; yields a folder for Tune."""
    with private_ray(2):
        yield tmp_path_factory.mktemp("scratch")


def facts(connected, tmp_path, workload, resources):
    """What the workers told, by trial in order of asking."""
    from orchestrator.execution.ray.tune import run_session

    log = MemoryLog()
    plan = make_plan(1, trials_per_arm=TRIALS, seeds=(), resources=resources)
    recorder = record(plan, log, root=tmp_path / "sweep")
    orders = JobEncoder(workload, 1000.0, resources.cpus, resources.gpus, tmp_path / "data")
    run_session(Session(recorder, threading.Event()), orders, connected, lambda: 1)
    assert recorder.finished
    last = {each.trial_id: each.payload["metrics"] for each in log.of(EventKind.MEASURED)}
    assert len(last) == TRIALS
    return list(last.values())


@pytest.mark.slow
def test_each_trial_has_a_process_with_its_threads_below_a_worker_that_is_used_again(connected, tmp_path):
    shown = facts(connected, tmp_path, PROCESS_FACTS, Resources(cpus=2))
    assert len({each["worker/pid"] for each in shown}) == TRIALS
    assert len({each["worker/server"] for each in shown}) == 1
    assert {each["worker/threads"] for each in shown} == {2.0}
    assert {each["worker/omp"] for each in shown} == {2.0}
    assert {each["worker/ray"] for each in shown} == {0.0}, "trials need no Ray"


@pytest.mark.slow
def test_a_trial_without_gpus_sees_none_and_a_share_of_a_cpu_has_a_thread(connected, tmp_path):
    shown = facts(connected, tmp_path, PROCESS_FACTS, Resources(cpus=0.5))
    assert {each["worker/devices"] for each in shown} == {0.0}
    assert {each["worker/threads"] for each in shown} == {1.0}
    assert all(each["worker/file_of_launch_folder"] for each in shown)


@pytest.mark.slow
def test_a_trial_that_fits_nowhere_is_refused(connected):
    from orchestrator.execution.ray.cluster import slot_counter

    with pytest.raises(InputError):
        slot_counter(Resources(cpus=3))
    assert slot_counter(Resources(cpus=1))() == 2


@pytest.mark.slow
def test_nodes_take_trials_once_they_have_answered(connected, tmp_path):
    from orchestrator.execution.ray.cluster import slot_counter
    from orchestrator.execution.ray.nodes import Nodes

    needs = node_requirements(make_plan(), Setup(tmp_path, PATH, checkpoints=f"file://{tmp_path}"))
    too_large = Nodes(needs, Resources(cpus=3), pytest.fail)
    assert slot_counter(Resources(cpus=3), too_large)() == 1, "asking is what makes a cluster grow"
    nodes = Nodes(needs, Resources(cpus=1), pytest.fail)
    count = slot_counter(Resources(cpus=1), nodes)
    assert (count(), nodes.asking, len(nodes.kept_out)) == (0, True, 1)
    wait_until(lambda: count() == 2)
    assert (nodes.asking, nodes.kept_out) == (False, ())


@pytest.mark.slow
def test_a_cluster_whose_every_node_lacks_something_is_refused(connected, tmp_path):
    from orchestrator.execution.ray.nodes import Nodes

    needs = node_requirements(make_plan(), Setup(tmp_path, PATH, checkpoints=f"file://{tmp_path}"))
    shown = []
    nodes = Nodes(replace(needs, code={"haltsweep": "other"}), Resources(cpus=1), shown.append)
    with pytest.raises(ExecutorError):
        wait_until(lambda: nodes.look() > 0)
    assert len(shown) == 1
    with pytest.raises(InputError):
        Nodes(replace(needs, code={"haltsweep": "other"}), Resources(cpus=1)).require_fit()
    Nodes(needs, Resources(cpus=1)).require_fit()


@pytest.mark.slow
def test_a_node_that_does_not_see_the_folder_costs_a_trial_nothing(connected, tmp_path, monkeypatch):
    from orchestrator.execution.ray.tune import run_session

    mark, reassigned = tmp_path / "mark", []
    pass_on = Session.reassign

    def record_reassigned(session, key):
        reassigned.append(key)
        mark.write_text("nonce")  # from now on it is seen
        pass_on(session, key)

    monkeypatch.setattr(Session, "reassign", record_reassigned)
    log = MemoryLog()
    recorder = record(make_plan(1, trials_per_arm=2, seeds=()), log, root=tmp_path / "sweep")
    orders = JobEncoder(PROCESS_FACTS, 1000.0, 1.0, 0.0, tmp_path / "data", mark=(str(mark), "nonce"))
    run_session(Session(recorder, threading.Event()), orders, connected, lambda: 1)
    assert reassigned
    assert [each.payload["kind"] for each in log.of(EventKind.ENDED)] == ["finished"] * 2
    assert len(log.of(EventKind.STARTED)) == 2


def wait_until(holds):
    until = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.1)
