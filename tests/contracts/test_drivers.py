"""Contract of drivers: a new driver is one more entry in `DRIVERS`. Tests of Ray's nodes share its cluster.

All sweeps run one trial at a time on a real ledger, so the events of two drivers are comparable. Sweeps on
Ray have fewer sessions, because starting a worker takes seconds.
"""

import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import pytest

from orchestrator.errors import ExecutorError, InputError
from orchestrator.execution.inline import run_inline
from orchestrator.execution.ray.node_check import node_requirements
from orchestrator.execution.session import Session
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.trial_jobs import JobEncoder
from orchestrator.execution.trial.watchdog import hang_reason, silence_limit
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Resources
from orchestrator.trials import OutcomeKind
from tests.support.processes.logs import MemoryLog, content, record
from tests.support.processes.process_lookup import wait_until
from tests.support.ray.connection import private_ray
from tests.support.ray.ray_workloads import PROCESS_FACTS
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.workloads import PATH

ASHA = {"name": "asha", "grace_steps": 1, "reduction": 2}
FAULTS = {
    "diverge": (OutcomeKind.DIVERGED, "loss=nan at step=1"),
    "raise": (OutcomeKind.CRASHED, "KeyError: 'a mistake of the workload'"),
    "oom": (OutcomeKind.OUT_OF_MEMORY, "MemoryError: no room for the batch"),
}


class Driver(Protocol):
    """Runs the sweep of the recorder, one trial at a time."""

    def __call__(
        self,
        recorder: Recorder,
        plan: Plan,
        data_dir: Path,
        *,
        on_change: Callable[[], None],
        stop: threading.Event,
    ) -> None: ...


def inline(
    recorder: Recorder, plan: Plan, data_dir: Path, *, on_change: Callable[[], None], stop: threading.Event
) -> None:
    orders = JobEncoder(PATH, plan.resources.checkpoint_seconds, 1.0, 0.0, data_dir)
    run_inline(recorder, orders, silence_s=silence_limit(plan.resources), on_change=on_change, stop=stop)


def ray(
    recorder: Recorder, plan: Plan, data_dir: Path, *, on_change: Callable[[], None], stop: threading.Event
) -> None:
    """Run trials on the Ray cluster that the fixture `driver` has started."""
    from orchestrator.execution.ray.tune import run_session

    resources = plan.resources
    orders = JobEncoder(PATH, resources.checkpoint_seconds, resources.cpus, resources.gpus, data_dir)
    with tempfile.TemporaryDirectory() as scratch:
        session = Session(recorder, stop, on_change, silence_s=silence_limit(resources))
        run_session(session, orders, Path(scratch), lambda: 1)


DRIVERS: dict[str, Driver] = {"inline": inline, "ray": ray}
SLOW = {"ray"}


@dataclass
class Sweep:
    """A sweep in a folder, run in one session or several."""

    driver: Driver
    plan: Plan
    root: Path
    changes: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, *, stop_after: int | None = None) -> "Sweep":
        """Run one session, interrupted after so many changes if given."""
        self.changes, self.stop = 0, threading.Event()

        def count_change() -> None:
            self.changes += 1
            if self.changes == stop_after:
                self.stop.set()

        folder = SweepFolder(self.root)
        self.root.mkdir(parents=True, exist_ok=True)
        with Ledger.open(folder.ledger_url, self.plan.name, create=True) as ledger:
            lease = ledger.claim(Holder.current())
            recorder = Recorder(self.plan, ledger, lease, folder)
            self.driver(recorder, self.plan, self.root / "data", on_change=count_change, stop=self.stop)
            recorder.close()
            ledger.release(lease)
        return self

    def events(self, kind: EventKind | None = None) -> list[Event]:
        """Return the log, or its events of one kind."""
        with Ledger.open(SweepFolder(self.root).ledger_url, self.plan.name) as ledger:
            return [event for event in ledger.events() if kind in {None, event.kind}]

    def endings(self) -> dict[str, tuple[OutcomeKind, str]]:
        """Return kind and reason of every final end."""
        ends = [
            (event.trial_id or "", (OutcomeKind(event.payload["kind"]), event.payload["reason"]))
            for event in self.events(EventKind.ENDED)
        ]
        final_ends = [(trial_id, end) for trial_id, end in ends if end[0].is_final]
        assert len(final_ends) == len(dict(final_ends)), "a trial must end once"
        return dict(final_ends)


def plan_with_all_endings() -> Plan:
    """Return a plan with every phase and ending: a model-based search, early stopping, every fault."""
    arms = [make_arm("baseline", tally=True), make_arm("twin", tally=True)]
    arms += [make_arm(f"always-{fault}", fault=fault, fault_at=1) for fault in FAULTS]
    sampler = {"name": "tpe", "n_startup_trials": 2}
    return make_plan(arms, trials_per_arm=3, sampler=sampler, stopper=ASHA, posthoc=({"model.shift": 0.5},))


def stoppable_plan() -> Plan:
    """Return a plan whose trials write checkpoints only when they are stopped."""
    arms = [make_arm(name, tally=True) for name in ("a", "b")]
    return make_plan(arms, trials_per_arm=1, seeds=(7,), resources=Resources(checkpoint_seconds=1e6))


@pytest.fixture(scope="module")
def ray_scratch(tmp_path_factory):
    """Start a Ray with two CPUs; yield a folder for Tune."""
    with private_ray(2):
        yield tmp_path_factory.mktemp("scratch")


@pytest.fixture(
    scope="module",
    params=[pytest.param(each, marks=pytest.mark.slow if each in SLOW else ()) for each in DRIVERS],
)
def driver(request):
    if request.param == "ray":
        request.getfixturevalue("ray_scratch")
    return DRIVERS[request.param]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A sweep that the inline driver runs without interruption; other drivers are compared with it."""
    return Sweep(
        inline, plan_with_all_endings(), tmp_path_factory.mktemp("reference") / "sweep with a space"
    ).run()


@pytest.fixture(scope="module")
def finished_sweep(driver, reference, tmp_path_factory):
    """The same sweep, run by the tested driver."""
    if driver is inline:
        return reference
    return Sweep(
        driver, plan_with_all_endings(), tmp_path_factory.mktemp("whole") / "sweep with a space"
    ).run()


class TestDriver:
    """Contract of every driver."""

    def test_every_kind_of_ending_is_recorded_with_its_reason(self, finished_sweep):
        endings = finished_sweep.endings()
        assert endings.keys() == {trial.trial_id for trial in finished_sweep.plan.trials}
        for trial in finished_sweep.plan.trials:
            kind, reason = endings[trial.trial_id]
            if trial.phase == "search" and trial.arm.startswith("always-"):
                expected, text = FAULTS[trial.arm.removeprefix("always-")]
                assert kind is expected
                assert text in reason.splitlines()[0]
            elif trial.arm.startswith("always-"):
                assert (kind, f"'{trial.arm}'" in reason) == (OutcomeKind.CRASHED, True)
            elif trial.phase != "search":
                assert (kind, "4" in reason) == (OutcomeKind.FINISHED, True)
        (closed_event,) = finished_sweep.events(EventKind.CLOSED)
        assert closed_event.payload == {"reason": "done"}

    def test_early_stopper_ends_trials_at_a_rung(self, finished_sweep):
        pruned = {
            trial_id for trial_id, (kind, _) in finished_sweep.endings().items() if kind is OutcomeKind.PRUNED
        }
        assert pruned
        histories = content(finished_sweep.events())
        for trial_id in pruned:
            assert histories[trial_id].measured[-1]["step"] in {1, 2}

    def test_seeds_are_paired_across_arms(self, finished_sweep):
        """Confirm trials of two arms with one seed use the same random stream."""
        histories = content(finished_sweep.events()).values()
        confirmed = [
            history for history in histories if history.asked["phase"] == "confirm" and history.measured
        ]
        chains = {
            (each.asked["arm"], each.asked["seed"]): [
                step["metrics"]["train/chain"] for step in each.measured
            ]
            for each in confirmed
        }
        assert chains["baseline", 101] == chains["twin", 101] != chains["twin", 102]

    def test_only_trials_after_the_search_use_the_test_split(self, finished_sweep):
        for history in content(finished_sweep.events()).values():
            has_test_metrics = any("test/score" in each["metrics"] for each in history.measured)
            finished = history.ended["kind"] == "finished"
            assert has_test_metrics == (finished and history.asked["phase"] != "search")

    def test_re_evaluation_starts_from_the_confirmed_checkpoint(self, finished_sweep):
        histories = content(finished_sweep.events())
        re_evaluations = [
            re_evaluation
            for re_evaluation in histories.values()
            if re_evaluation.asked["phase"] == "posthoc" and re_evaluation.measured
        ]
        assert len(re_evaluations) == 4
        for re_evaluation in re_evaluations:
            (measurement,), source = (
                re_evaluation.measured,
                histories[re_evaluation.asked["source_id"]].measured[-1],
            )
            assert measurement["step"] == source["step"]
            assert measurement["metrics"]["valid/score"] == pytest.approx(
                source["metrics"]["valid/score"] + 0.5
            )

    def test_driver_writes_the_same_events_as_the_inline_driver(self, finished_sweep, reference):
        events, expected_events = content(finished_sweep.events()), content(reference.events())
        assert list(events) == list(expected_events), "trials must start in the same order"
        for trial_id, history in events.items():
            assert (history.asked, history.measured) == (
                expected_events[trial_id].asked,
                expected_events[trial_id].measured,
            )

    def test_only_confirmed_trials_keep_their_checkpoints(self, finished_sweep):
        stored_ids = {path.name for path in SweepFolder(finished_sweep.root).checkpoint_folder.iterdir()}
        endings = finished_sweep.endings()
        confirmed = {trial.trial_id for trial in finished_sweep.plan.trials if trial.phase == "confirm"}
        assert stored_ids == {
            trial_id for trial_id in confirmed if endings[trial_id][0] is OutcomeKind.FINISHED
        }
        assert finished_sweep.changes >= len(finished_sweep.plan.trials), "changes must be announced"

    @pytest.mark.slow
    def test_silent_and_slow_trials_time_out_and_others_continue(self, driver, tmp_path, monkeypatch):
        """The workload reports half a second a step, so step 11 of 12 exceeds five seconds. A silent trial
        has three more seconds, in which a worker starts on a busy machine."""
        monkeypatch.setattr("orchestrator.execution.trial.watchdog.GRACE_S", 3.0)
        arms = [make_arm("stuck", fault="hang", fault_at=3), make_arm("slow", steps=12), make_arm("sound")]
        plan = make_plan(arms, trials_per_arm=1, seeds=(), resources=Resources(minutes=5 / 60))
        sweep = Sweep(driver, plan, tmp_path / "sweep").run()
        endings = {trial.arm: sweep.endings()[trial.trial_id] for trial in plan.trials}
        assert endings["stuck"] == (OutcomeKind.TIMED_OUT, hang_reason(8))
        assert endings["slow"][0] is OutcomeKind.TIMED_OUT
        assert endings["sound"][0] is OutcomeKind.FINISHED
        arms_by_id = {trial.trial_id: trial.arm for trial in plan.trials}
        measured = [
            (arms_by_id[event.trial_id], event.payload["step"]) for event in sweep.events(EventKind.MEASURED)
        ]
        assert [step for arm, step in measured if arm == "stuck"] == [1, 2], "earlier reports must stay"
        assert [step for arm, step in measured if arm == "slow"] == [*range(1, 12)]

    def test_interrupted_sweep_repeats_no_step(self, driver, tmp_path):
        plan, uninterrupted = stoppable_plan(), Sweep(inline, stoppable_plan(), tmp_path / "straight").run()
        sweep, stops = Sweep(driver, plan, tmp_path / "stopped"), (9,) if driver is ray else (1, 4)
        for stop_after in stops:
            sweep.run(stop_after=stop_after)
            assert len(sweep.endings()) < len(plan.trials)
        assert content(sweep.run().events()) == content(uninterrupted.events())
        steps = (sweep.root / "data/steps.txt").read_text().splitlines()
        assert len(steps) == len(set(steps)), "a resumed trial must not repeat a step"
        reasons = [event.payload["reason"] for event in sweep.events(EventKind.CLOSED)]
        assert reasons == ["interrupted"] * len(stops) + ["done"]
        num_started = len(sweep.events(EventKind.STARTED))
        assert len(sweep.run().events(EventKind.STARTED)) == num_started, "a finished sweep starts no trial"


@pytest.mark.slow
def test_each_trial_has_a_process_with_its_threads_below_a_reused_worker(ray_scratch, tmp_path):
    from orchestrator.execution.ray.tune import run_session

    log = MemoryLog()
    plan = make_plan(1, trials_per_arm=2, seeds=(), resources=Resources(cpus=2))
    recorder = record(plan, log, root=tmp_path / "sweep")
    encoder = JobEncoder(PROCESS_FACTS, 1000.0, 2, 0, tmp_path / "data")
    run_session(Session(recorder, threading.Event()), encoder, ray_scratch, lambda: 1)
    assert recorder.is_finished
    facts = [event.payload["metrics"] for event in log.of(EventKind.MEASURED)]
    assert len({fact["worker/pid"] for fact in facts}) == 2
    assert len({fact["worker/server"] for fact in facts}) == 1
    assert {fact["worker/threads"] for fact in facts} == {2.0}
    assert {fact["worker/omp"] for fact in facts} == {2.0}
    assert {fact["worker/ray"] for fact in facts} == {0.0}, "trials must not load Ray"
    assert {fact["worker/devices"] for fact in facts} == {0.0}
    assert all(fact["worker/file_of_launch_folder"] for fact in facts)


@pytest.mark.slow
def test_nodes_take_trials_after_their_check(ray_scratch, tmp_path):
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
    wait_until(lambda: count() == 2, "the node is checked")
    assert (nodes.is_checking, nodes.excluded_nodes) == (False, ())


@pytest.mark.slow
def test_cluster_without_a_suitable_node_is_refused(ray_scratch, tmp_path):
    from orchestrator.execution.ray.nodes import Nodes

    needs = node_requirements(make_plan(), Setup(tmp_path, PATH, checkpoints=f"file://{tmp_path}"))
    messages = []
    nodes = Nodes(replace(needs, code={"haltsweep": "other"}), Resources(cpus=1), messages.append)
    with pytest.raises(ExecutorError):
        wait_until(lambda: nodes.count_free_slots() > 0, "the node is checked")
    assert len(messages) == 1
    with pytest.raises(InputError):
        Nodes(replace(needs, code={"haltsweep": "other"}), Resources(cpus=1)).require_fit()
    Nodes(needs, Resources(cpus=1)).require_fit()


@pytest.mark.slow
def test_trial_moves_from_a_node_without_the_folder(ray_scratch, tmp_path, monkeypatch):
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
    run_session(Session(recorder, threading.Event()), encoder, ray_scratch, lambda: 1)
    assert reassigned
    assert [event.payload["kind"] for event in log.of(EventKind.ENDED)] == ["finished"] * 2
    assert len(log.of(EventKind.STARTED)) == 2
