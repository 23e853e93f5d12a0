"""MLflow has exactly the content of the ledger, however its writers were interrupted."""

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mlflow import MlflowClient

from orchestrator.ledger import events as log
from orchestrator.ledger.events import Event
from orchestrator.ledger.lease import Holder
from orchestrator.plan.types import Change
from orchestrator.tracking.mlflow import mlflow_writer
from orchestrator.tracking.mlflow.desired_runs import KILLED_REASON
from orchestrator.tracking.mlflow.mlflow_runs import TrackingOutage
from orchestrator.tracking.mlflow.mlflow_writer import MlflowWriter
from orchestrator.tracking.summary import ArmSummary
from orchestrator.trials import Outcome, OutcomeKind
from tests.orchestrator.tracking.conftest import append
from tests.support.mlflow.mlflow_db import runs
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.histories import DEAD, OUTCOME_KINDS, begun, history, trial_of
from trainables.protocol import Measurement

OpenWriter = Callable[..., MlflowWriter]
STATUS = {
    OutcomeKind.FINISHED: "FINISHED",
    OutcomeKind.PRUNED: "FINISHED",
    OutcomeKind.DIVERGED: "FAILED",
    OutcomeKind.OUT_OF_MEMORY: "FAILED",
    OutcomeKind.TIMED_OUT: "FAILED",
    OutcomeKind.CRASHED: "FAILED",
    OutcomeKind.STOPPED: "KILLED",
}
"""Written out, because this choice is documented. Skipped trials never start, and have no run."""


def points_of(events: list[Event], trial_id: str) -> list[tuple[str, int, int, float]]:
    points = []
    for event in events:
        if event.kind == "measured" and event.trial_id == trial_id:
            step, at_ms = event.payload["step"], round(event.at * 1000)
            points += [(name, step, at_ms, value) for name, value in event.payload["metrics"].items()]
            points.append(("time/seconds", step, at_ms, event.payload["seconds"]))
    return sorted(points)


def test_every_run_matches_the_ledger(open_writer, ledger, database, plan):
    events = append(ledger, history(plan, 1))
    counts = open_writer().update()
    mlflow_runs = runs(database, plan.name)
    assert set(mlflow_runs) == {
        "sweep/-/-",
        *(f"arm/{arm.name}/-" for arm in plan.arms),
        *(f"trial/{trial.arm}/{trial.trial_id}" for trial in begun(plan)),
    }
    assert counts.runs == len(mlflow_runs)
    assert counts.points == sum(len(run.points) for run in mlflow_runs.values())
    for number, trial in enumerate(plan.trials):
        if (kind := OUTCOME_KINDS[number % len(OUTCOME_KINDS)]) is OutcomeKind.SKIPPED:
            continue
        run = mlflow_runs[f"trial/{trial.arm}/{trial.trial_id}"]
        assert run.status == STATUS[kind]
        assert list(run.points) == points_of(events, trial.trial_id)
        haltsweep_tags = {
            name.removeprefix("haltsweep."): value for name, value in run.tags.items() if "haltsweep" in name
        }
        assert haltsweep_tags == {
            "sweep": plan.name,
            "ledger": ledger.uid,
            "kind": "trial",
            "arm": trial.arm,
            "phase": trial.phase,
            "seed": str(trial.seed),
            "number": str(trial.number),
            "trial": trial.trial_id,
            "outcome": kind.value,
            "reason": kind.sentence,
        }
        assert run.tags["mlflow.parentRunId"] == f"arm/{trial.arm}/-"
        assert run.name == f"{trial.arm} {trial.phase} {trial.number}"
        assert (run.params["model.x"], run.params["seed"]) == (str(number / 7), str(trial.seed))
        times = [event.at for event in events if event.trial_id == trial.trial_id]
        assert (run.start_ms, run.end_ms) == (round(times[1] * 1000), round(times[-1] * 1000)), (
            "a run must start with the start event"
        )


def test_arms_and_the_sweep_have_comparable_runs(open_writer, ledger, database):
    baseline, changed_arm = make_arm("baseline"), make_arm("other", steps=8)
    plan = make_plan([baseline, replace(changed_arm, changes=(Change("train.steps", 4, 8),))])
    events = append(ledger, history(plan, 1))
    writer = open_writer(plan=plan)
    writer.update()
    mlflow_runs = runs(database, plan.name)
    sweep, arm = mlflow_runs["sweep/-/-"], mlflow_runs["arm/other/-"]
    assert arm.params == {
        "task.name": "synthetic",
        "model.shift": "0.0",
        "train.steps": "8",
        "train.fault": "null",
    }
    assert arm.tags["mlflow.note.content"] == "to be compared\n- `train.steps`: 4 -> 8"
    assert arm.tags["mlflow.parentRunId"] == "sweep/-/-"
    assert sweep.tags["mlflow.note.content"] == plan.question
    assert sweep.tags["mlflow.source.git.commit"] == "c0ffee"
    assert sweep.tags["haltsweep.spec_digest"] == plan.spec_digest
    assert (sweep.status, arm.status) == ("FINISHED", "FINISHED")
    assert sweep.end_ms == round(events[-1].at * 1000)
    trial_ids = {trial.trial_id for trial in plan.trials if trial.arm == "other"}
    times = [event.at for event in events if event.trial_id in trial_ids and event.kind != "asked"]
    assert (arm.start_ms, arm.end_ms) == (round(min(times) * 1000), round(max(times) * 1000))
    assert not arm.latest, "curves must be published with the report"
    writer.publish(ArmSummary({"other": {"b/score": 0.5, "a/score": 0.25}}))
    latest = list(runs(database, plan.name)["arm/other/-"].latest)
    assert latest[:2] == ["b/score", "a/score"], "the order of the metrics must be retained"
    assert {"curve-1-seed/valid/score", "curve-1-seed/train/loss"} <= set(latest[2:])
    trial = next(run for key, run in mlflow_runs.items() if key.startswith("trial/other"))
    assert trial.params["train.steps"] == "8", "trials must have the settings in which arms differ"


def test_second_projection_stores_nothing_even_in_parts(open_writer, ledger, database, plan, monkeypatch):
    append(ledger, history(plan, 1))
    writer = open_writer()
    assert writer.update().total > 0
    runs_before = runs(database, plan.name)
    assert writer.update().total == 0
    monkeypatch.setattr(mlflow_writer, "EVENTS_AT_ONCE", 4)
    assert open_writer().update().total == 0
    assert runs(database, plan.name) == runs_before


@pytest.mark.parametrize("seed", range(2))
def test_projection_in_parts_equals_a_projection_at_once(
    open_writer, ledger, database, plan, seed, empty_mlflow
):
    stream = random.Random(seed)
    lease = ledger.claim(Holder.current())
    events = list(history(plan, seed + 1))
    writer = open_writer()
    while events:
        size = stream.randrange(1, 25)
        ledger.append(events[:size], lease)
        events = events[size:]
        if stream.random() < 0.3:
            writer = open_writer()
        writer.update()
    ledger.release(lease)
    writer.update()
    complete_file = database.with_name("complete.db")
    shutil.copy(empty_mlflow, complete_file)
    open_writer(f"sqlite:///{complete_file}").update()
    assert runs(database, plan.name) == runs(complete_file, plan.name)


REQUESTS = ("create_run", "log_batch", "set_terminated", "update_run", "search_runs")


def make_unreliable(monkeypatch: pytest.MonkeyPatch, stream: random.Random) -> None:
    """Let requests of MLflow's client fail at random, sometimes after their effect."""

    def make_failing(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            chance = stream.random()
            if chance < 0.15:
                raise ConnectionError("the server is down")
            result = method(*args, **kwargs)
            if chance > 0.85:
                raise TimeoutError("the answer was lost")
            return result

        return call

    for name in REQUESTS:
        monkeypatch.setattr(MlflowClient, name, make_failing(getattr(MlflowClient, name)))


@pytest.mark.parametrize("seed", range(2))
def test_outages_neither_lose_nor_duplicate_points(
    open_writer, ledger, database, plan, seed, empty_mlflow, monkeypatch
):
    append(ledger, history(plan, 1))
    outages = 0
    with monkeypatch.context() as patched:
        make_unreliable(patched, random.Random(seed))
        for _ in range(500):
            try:
                open_writer().update()
                break
            except TrackingOutage:
                outages += 1
    assert outages > 3, "the seeds must make several requests fail"
    assert open_writer().update().total == 0
    undisturbed = database.with_name("undisturbed.db")
    shutil.copy(empty_mlflow, undisturbed)
    open_writer(f"sqlite:///{undisturbed}").update()
    assert runs(database, plan.name) == runs(undisturbed, plan.name)


def test_open_trials_are_running_while_the_holder_lives(open_writer, ledger, database, plan):
    lease = ledger.claim(Holder.current())
    trial = trial_of(plan, 0)
    first_events = [log.claim_event(1.0, DEAD, "d", {}), log.params_event(2.0, trial)]
    ledger.append([*first_events, log.start_event(3.0, trial.trial_id, 1)], lease)
    writer = open_writer()
    writer.update()
    key = f"trial/{trial.planned.arm}/{trial.trial_id}"
    assert {run.status for run in runs(database, plan.name).values()} == {"RUNNING"}
    ledger.release(lease)  # like a dead holder
    assert writer.update().endings == 3, "sweep, arm and trial; the other arm has not started"
    killed_runs = runs(database, plan.name)
    assert {run.status for run in killed_runs.values()} == {"KILLED"}
    assert {run.end_ms for run in killed_runs.values()} == {3000}
    assert (killed_runs[key].tags["haltsweep.outcome"], killed_runs[key].tags["haltsweep.reason"]) == (
        "stopped",
        KILLED_REASON,
    )
    lease = ledger.claim(Holder.current())
    ledger.append([log.claim_event(10.0, DEAD, "d", {}), log.start_event(11.0, trial.trial_id, 2)], lease)
    writer.update()
    resumed_runs = runs(database, plan.name)
    assert resumed_runs[key].status == "RUNNING"
    assert resumed_runs[key].tags["haltsweep.outcome"] == "running"
    ledger.append(
        [
            log.end_event(12.0, trial.trial_id, Outcome(OutcomeKind.FINISHED, "done")),
            log.release_event(13.0, "done"),
        ],
        lease,
    )
    ledger.release(lease)
    writer.update()
    finished_runs = runs(database, plan.name)
    assert {run.status for run in finished_runs.values()} == {"FINISHED"}
    assert (finished_runs[key].start_ms, finished_runs[key].end_ms) == (3000, 12000)


def test_interrupted_sweep_is_killed_with_a_reason(open_writer, ledger, database, plan):
    append(ledger, history(plan, 1, closed="interrupted"))
    open_writer().update()
    sweep = runs(database, plan.name)["sweep/-/-"]
    assert (sweep.status, sweep.tags["haltsweep.reason"]) == ("KILLED", "interrupted")


def test_published_values_are_stored_only_when_they_change(open_writer, ledger, database, plan):
    append(ledger, history(plan, 1))
    writer = open_writer()
    writer.update()
    values = {
        "arm-0": {"test/accuracy/mean": 0.5, "test/accuracy/n": 8.0, "bad": float("nan"), "a%b": 1.0},
        "gone": {"x": 1.0},
    }
    at_close = sum(map(len, writer._desired.at_close.values()))
    assert writer.publish(ArmSummary(values)).points == 3 + at_close
    assert writer.publish(ArmSummary(values)).total == 0
    new_writer = open_writer()
    new_writer.update()
    assert new_writer.publish(ArmSummary(values)).total == 0
    assert runs(database, plan.name)["arm/arm-0/-"].latest == {
        "test/accuracy/mean": 0.5,
        "test/accuracy/n": 8.0,
        "a_x25_b": 1.0,
        "time/running_seconds": 4.0,
    }
    values["arm-0"]["test/accuracy/mean"] = 0.25
    assert new_writer.publish(ArmSummary(values)).points == 1
    assert runs(database, plan.name)["arm/arm-0/-"].latest["test/accuracy/mean"] == 0.25, (
        "the newest value must count, even if it is smaller"
    )


def test_verdicts_are_tags_of_the_arms_and_written_once(open_writer, ledger, database, plan):
    append(ledger, history(plan, 1))
    writer = open_writer()
    writer.update()
    tags_of_arm = {"verdict": "arm-1: undecided: about 6 more seeds"}
    for notice in ("", "Trials ran 2 versions.", "-"):  # a missing notice deletes the tag
        summary = ArmSummary({}, {"arm-1": tags_of_arm | ({"notice": notice} if len(notice) > 1 else {})})
        assert writer.publish(summary).tags == 1
        assert writer.publish(summary).total == 0
        tags = runs(database, plan.name)["arm/arm-1/-"].tags
        assert (tags["haltsweep.verdict"], tags.get("haltsweep.notice", "")) == (
            tags_of_arm["verdict"],
            notice,
        )


def test_many_metrics_and_long_params_are_stored(open_writer, ledger, database):
    arm = make_arm("wide", long="y" * 7000, **{f"field{number}": number for number in range(250)})
    plan = make_plan([arm])
    trial = trial_of(plan, 0)
    many_metrics = {f"m/{number:04d}": float(number) for number in range(2500)}
    events = [
        log.claim_event(1.0, DEAD, "d", {}),
        log.params_event(2.0, trial),
        log.start_event(3.0, trial.trial_id, 1),
        *(
            log.measurement_event(4.0, trial.trial_id, Measurement(step, 1.0, many_metrics))
            for step in (1, 2)
        ),
        log.end_event(5.0, trial.trial_id, Outcome(OutcomeKind.CRASHED, "z" * 20_000)),
    ]
    append(ledger, events)
    open_writer(plan=plan).update()
    mlflow_runs = runs(database, plan.name)
    run = mlflow_runs[f"trial/wide/{trial.trial_id}"]
    assert len(run.points) == 2 * 2501
    assert len(run.tags["haltsweep.reason"]) == 1000
    params = mlflow_runs["arm/wide/-"].params
    assert len(params) == 255
    assert params["train.long"] == "y" * 6000
