"""The running time of an arm's trials excludes the time between launches."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.identity import SweepFolder
from orchestrator.ledger import events as log
from orchestrator.ledger.events import Event
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.tracking.mlflow.arms_view import OTHER_WIDTHS
from orchestrator.tracking.mlflow.mlflow_writer import MlflowWriter
from orchestrator.tracking.mlflow.running_time import KEY, RunningTime
from orchestrator.tracking.summary import ArmSummary
from orchestrator.tracking.sync import artifact_root
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.mlflow.mlflow_db import runs
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD, trial_of

FINISHED = Outcome(OutcomeKind.FINISHED, "done")
HOUR = 3600.0


def reported_seconds(time: RunningTime) -> list[float]:
    return [point.value for point in time.points(0)]


def test_parallel_trials_count_once() -> None:
    time = RunningTime()
    time.start("a", 1_000)
    time.start("b", 2_000)
    time.end("a", 4_000)
    time.end("b", 7_000)
    time.start("c", 100_000)
    time.end("c", 101_500)
    assert reported_seconds(time) == [7.5]
    assert reported_seconds(time) == [], "each duration must be reported once"


def test_lost_trial_counts_until_its_last_event() -> None:
    time = RunningTime()
    time.start("a", 1_000)
    time.observe("a", 3_000)
    time.abandon()
    time.end("a", 900_000)
    assert reported_seconds(time) == [2.0]
    time.start("a", 1_000_000)
    time.end("a", 1_001_000)
    assert [(point.value, point.step) for point in time.points(5)] == [(3.0, 1)]


def test_clock_that_is_set_back_subtracts_no_time() -> None:
    time = RunningTime()
    time.start("a", 5_000)
    time.end("a", 4_000)
    assert reported_seconds(time) == []


def launch_events(plan: Plan, started_at: float, *numbers: int) -> list[Event]:
    """Return the events of a launch that runs the given trials one after another, ten seconds each."""
    events = [log.opened(started_at, DEAD, plan.spec_digest, {})]
    for index, number in enumerate(numbers):
        trial, at = trial_of(plan, number), started_at + 10 * index
        name = trial.trial_id
        events += [
            log.trial_assigned(at, trial),
            log.started(at, name, 1),
            log.ended(at + 10, name, FINISHED),
        ]
    return [*events, log.closed(started_at + 10 * len(numbers), "done")]


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_arm_duration_excludes_the_time_before_an_extension(
    folder: SweepFolder, ledger: Ledger, uri: str, database: Path, *, is_rebuilt: bool
) -> None:
    """An extension adds a seed after a night; MLflow is written after each launch or once at the end."""
    small_plan, large_plan = (
        replace(make_plan(1, trials_per_arm=0, seeds=seeds), name=folder.name)
        for seeds in ((101, 102), (101, 102, 103))
    )
    lease, night = ledger.claim(Holder.current()), 10 * HOUR
    for plan, events in (
        (small_plan, launch_events(small_plan, 100.0, 0, 1)),
        (large_plan, launch_events(large_plan, night, 2)),
    ):
        ledger.append(events, lease)
        if plan is large_plan or not is_rebuilt:
            writer = MlflowWriter(uri, plan, ledger, artifact_root(folder))
            writer.update()
            writer.publish(ArmSummary({}))
            assert writer.publish(ArmSummary({})).total == 0
    ledger.release(lease)
    arm = runs(database, folder.name)["arm/arm-0/-"]
    assert arm.end_ms == round((night + 10) * 1000)
    assert arm.end_ms - arm.start_ms > HOUR * 1000, "MLflow counts the whole time"
    assert arm.latest == {KEY: 30.0}
    points = [(step, at_ms, value) for _, step, at_ms, value in arm.points]
    assert points == [(0, 120_000, 20.0), (1, round((night + 10) * 1000), 30.0)]
    assert f"metrics.`{KEY}`" in OTHER_WIDTHS, "the view must have this column"
