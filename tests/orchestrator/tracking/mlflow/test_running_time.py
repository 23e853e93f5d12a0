"""How long an arm's trials have run: what lies between two launches counts for nothing."""

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


def reported(time: RunningTime) -> list[float]:
    return [point.value for point in time.points(0)]


def test_parallel_trials_count_once() -> None:
    time = RunningTime()
    time.start("a", 1_000)
    time.start("b", 2_000)
    time.end("a", 4_000)
    time.end("b", 7_000)
    time.start("c", 100_000)
    time.end("c", 101_500)
    assert reported(time) == [7.5]
    assert reported(time) == [], "told once"


def test_a_lost_trial_counts_until_its_last_event() -> None:
    time = RunningTime()
    time.start("a", 1_000)
    time.hear("a", 3_000)
    time.abandon()
    time.end("a", 900_000)
    assert reported(time) == [2.0]
    time.start("a", 1_000_000)
    time.end("a", 1_001_000)
    assert [(point.value, point.step) for point in time.points(5)] == [(3.0, 1)]


def test_a_clock_that_is_set_back_subtracts_no_time() -> None:
    time = RunningTime()
    time.start("a", 5_000)
    time.end("a", 4_000)
    assert reported(time) == []


def of_seeds(plan: Plan, begun: float, *numbers: int) -> list[Event]:
    """A launch that runs these trials one after the other, ten seconds each."""
    events = [log.opened(begun, DEAD, plan.spec_digest, {})]
    for place, number in enumerate(numbers):
        trial, at = trial_of(plan, number), begun + 10 * place
        name = trial.trial_id
        events += [log.asked(at, trial), log.started(at, name, 1), log.ended(at + 10, name, FINISHED)]
    return [*events, log.closed(begun + 10 * len(numbers), "done")]


@pytest.mark.parametrize("rebuilt", [False, True])
def test_mlflow_has_an_arms_duration_without_the_time_before_an_extension(
    folder: SweepFolder, ledger: Ledger, uri: str, database: Path, *, rebuilt: bool
) -> None:
    """Two seeds, a night, a third one: whether MLflow was written after each or once after all."""
    few, more = (
        replace(make_plan(1, trials_per_arm=0, seeds=seeds), name=folder.name)
        for seeds in ((101, 102), (101, 102, 103))
    )
    lease, night = ledger.claim(Holder.current()), 10 * HOUR
    for plan, events in ((few, of_seeds(few, 100.0, 0, 1)), (more, of_seeds(more, night, 2))):
        ledger.append(events, lease)
        if plan is more or not rebuilt:
            writer = MlflowWriter(uri, plan, ledger, artifact_root(folder))
            writer.update()
            writer.publish(ArmSummary({}))
            assert writer.publish(ArmSummary({})).total == 0
    ledger.release(lease)
    arm = runs(database, folder.name)["arm/arm-0/-"]
    assert arm.end_ms == round((night + 10) * 1000)
    assert arm.end_ms - arm.start_ms > HOUR * 1000, "as MLflow counts"
    assert arm.latest == {KEY: 30.0}
    points = [(step, at_ms, value) for _, step, at_ms, value in arm.points]
    assert points == [(0, 120_000, 20.0), (1, round((night + 10) * 1000), 30.0)]
    assert f"metrics.`{KEY}`" in OTHER_WIDTHS, "a column of the view"
