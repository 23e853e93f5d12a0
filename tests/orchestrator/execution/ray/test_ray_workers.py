"""Workers of the Ray driver: used again, with a process for each trial."""

import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from orchestrator.errors import ExecutorError, InputError
from orchestrator.execution.ray.node_check import needs_of
from orchestrator.execution.ray.ray_settings import ray_environment
from orchestrator.execution.session import Session
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.execution.trial.jobs import JobEncoder
from orchestrator.ledger.events import EventKind
from orchestrator.spec.section import Resources
from tests.support.processes.logs import MemoryLog, record
from tests.support.ray.ray_workloads import TELLING
from tests.support.specs.plans import make_plan
from tests.support.sweeps.workloads import PATH

TRIALS = 4


@pytest.fixture(scope="module")
def connected(tmp_path_factory):
    """A Ray with two CPUs; yields a folder for Tune."""
    with ray_environment(private=True):
        from orchestrator.execution.ray.ray_cluster import cluster

        with cluster(None, num_cpus=2):
            yield tmp_path_factory.mktemp("scratch")


def facts(connected, tmp_path, workload, resources):
    """What the workers told, by trial in order of asking."""
    from orchestrator.execution.ray.ray_tune import run_session

    log = MemoryLog()
    plan = make_plan(1, trials_per_arm=TRIALS, seeds=(), resources=resources)
    recorder = record(plan, log, root=tmp_path / "sweep")
    orders = JobEncoder(workload, 1000.0, resources.cpus, resources.gpus, tmp_path / "data")
    run_session(Session(recorder, lambda: 1, threading.Event()), orders, connected)
    assert recorder.finished
    last = {each.trial_id: each.payload["metrics"] for each in log.of(EventKind.MEASURED)}
    assert len(last) == TRIALS
    return list(last.values())


@pytest.mark.slow
def test_each_trial_has_a_process_with_its_threads_below_a_worker_that_is_used_again(connected, tmp_path):
    shown = facts(connected, tmp_path, TELLING, Resources(cpus=2))
    assert len({each["worker/pid"] for each in shown}) == TRIALS
    assert len({each["worker/server"] for each in shown}) == 1
    assert {each["worker/threads"] for each in shown} == {2.0}
    assert {each["worker/omp"] for each in shown} == {2.0}
    assert {each["worker/ray"] for each in shown} == {0.0}, "trials need no Ray"


@pytest.mark.slow
def test_a_trial_without_gpus_sees_none_and_a_share_of_a_cpu_has_a_thread(connected, tmp_path):
    shown = facts(connected, tmp_path, TELLING, Resources(cpus=0.5))
    assert {each["worker/devices"] for each in shown} == {0.0}
    assert {each["worker/threads"] for each in shown} == {1.0}
    assert all(each["worker/file_of_launch_folder"] for each in shown)


@pytest.mark.slow
def test_a_trial_that_fits_nowhere_is_refused(connected):
    from orchestrator.execution.ray.ray_cluster import slot_counter

    shown = (
        r"a trial must fit on one node: it asks for cpus=3 and gpus=0, and there is a node with CPU=2 GPU=0"
    )
    with pytest.raises(InputError, match=shown):
        slot_counter(Resources(cpus=3))
    assert slot_counter(Resources(cpus=1))() == 2


@pytest.mark.slow
def test_nodes_take_trials_once_they_have_answered(connected, tmp_path):
    from orchestrator.execution.ray.ray_cluster import slot_counter
    from orchestrator.execution.ray.ray_nodes import Nodes

    needs = needs_of(make_plan(), Setup(tmp_path, PATH, checkpoints=f"file://{tmp_path}"))
    too_large = Nodes(needs, Resources(cpus=3), pytest.fail)
    assert slot_counter(Resources(cpus=3), too_large)() == 1, "asking is what makes a cluster grow"
    nodes = Nodes(needs, Resources(cpus=1), pytest.fail)
    count = slot_counter(Resources(cpus=1), nodes)
    assert (count(), nodes.asking, len(nodes.kept_out)) == (0, True, 1)
    wait_until(lambda: count() == 2)
    assert (nodes.asking, nodes.kept_out) == (False, ())


@pytest.mark.slow
def test_a_cluster_whose_every_node_lacks_something_is_refused(connected, tmp_path):
    from orchestrator.execution.ray.ray_nodes import Nodes

    needs = needs_of(make_plan(), Setup(tmp_path, PATH, checkpoints=f"file://{tmp_path}"))
    shown = []
    nodes = Nodes(replace(needs, code="other"), Resources(cpus=1), shown.append)
    with pytest.raises(ExecutorError, match=r"to run trials, and none can: .*: its code of halt"):
        wait_until(lambda: nodes.look() > 0)
    (line,) = shown
    assert line.endswith("is another one than where the launch is; it takes no trials")


@pytest.mark.slow
def test_a_node_that_does_not_see_the_folder_costs_a_trial_nothing(connected, tmp_path, monkeypatch):
    from orchestrator.execution.ray.ray_tune import run_session

    mark, refused = tmp_path / "mark", []
    pass_on = Session.refused

    def shown(session, key):
        refused.append(key)
        mark.write_text("nonce")  # from now on it is seen
        pass_on(session, key)

    monkeypatch.setattr(Session, "refused", shown)
    log = MemoryLog()
    recorder = record(make_plan(1, trials_per_arm=2, seeds=()), log, root=tmp_path / "sweep")
    orders = JobEncoder(TELLING, 1000.0, 1.0, 0.0, tmp_path / "data", mark=(str(mark), "nonce"))
    run_session(Session(recorder, lambda: 1, threading.Event()), orders, connected)
    assert refused
    assert [each.payload["kind"] for each in log.of(EventKind.ENDED)] == ["finished"] * 2
    assert len(log.of(EventKind.STARTED)) == 2


def wait_until(holds):
    until = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.1)


@pytest.mark.slow
def test_an_address_where_no_ray_is(monkeypatch):
    from orchestrator.execution.ray import ray_cluster

    def refuse(**_):
        raise ConnectionError("nobody there")

    monkeypatch.setattr(ray_cluster.ray, "init", refuse)
    with (
        pytest.raises(
            InputError, match=r"must be that of a running Ray cluster, got '127.0.0.1:1': nobody there"
        ),
        ray_cluster.cluster("127.0.0.1:1", None),
    ):
        pass


def half_started(failures):
    """A stand-in for `ray.init` that leaves a process behind when it fails; and what it was called with."""
    calls, left = [], []

    def start(**options):
        calls.append(options)
        if len(calls) <= failures:
            left.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
            raise Exception("The current node timed out during startup.")  # noqa: TRY002 - as Ray does

    return start, calls, left


def test_a_ray_that_did_not_come_up_is_started_again(monkeypatch):
    from orchestrator.execution.ray import ray_cluster

    start, calls, left = half_started(failures=1)
    monkeypatch.setattr(ray_cluster.ray, "init", start)
    with ray_cluster.cluster(None, 1):
        assert len(calls) == 2
    assert calls[0]["_temp_dir"] != calls[1]["_temp_dir"]
    assert [process.wait(10) for process in left] == [-9]


def test_a_ray_that_never_comes_up_is_one_clear_error(monkeypatch):
    from orchestrator.execution.ray import ray_cluster

    start, calls, left = half_started(failures=99)
    monkeypatch.setattr(ray_cluster.ray, "init", start)
    shown = r"Ray must start .* did not in 3 tries: The current node timed out .*; try again when"
    with pytest.raises(ExecutorError, match=shown), ray_cluster.cluster(None, 1):
        pass
    assert len(calls) == ray_cluster.STARTS
    assert [process.wait(10) for process in left] == [-9] * ray_cluster.STARTS
