"""Runs that MLflow should contain, with names and texts that MLflow accepts."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.ledger import events as log
from orchestrator.plan.types import Plan
from orchestrator.tracking.mlflow.desired_runs import DesiredRuns, as_params
from orchestrator.tracking.mlflow.points import Point, metric_key
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.processes.logs import HOLDER
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import trial_of
from trainables.protocol import Measurement

PROVENANCE = {"command": ["/a/bin/haltsweep", "launch", "spec.yaml"], "commit": "c0ffee"}


@given(st.text(st.characters(), min_size=1))
@example("a//b")
@example("../x")
@example("/")
@example("x" * 300)
def test_mlflow_accepts_the_key_of_any_metric_name(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    assert _validate_metric_name(metric_key(name)) is None, "MLflow must accept the key"
    assert metric_key(name)


def test_common_names_are_unchanged() -> None:
    for name in ("near-iid/depth_p10", "val/macro avg/f1-score", "valid/точность"):
        assert metric_key(name) == name


@given(st.lists(st.text("_x04@f/.é", max_size=8), min_size=2, max_size=2, unique=True))
@example(["mAP@50", "mAP_50"])
@example(["x" * 300, "x" * 301])
@example(["a_x4@", "a\x04x40_"])
@example(["a//b", "a/_x_/b"])
def test_different_names_have_different_keys(names: list[str]) -> None:
    assert metric_key(names[0]) != metric_key(names[1])


def test_control_characters_in_params_are_escaped() -> None:
    assert as_params({"train.note": "\x1b[2J<b>"}) == {"train.note": r"\x1b[2J<b>"}


def test_skipped_trial_has_no_run() -> None:
    plan = make_plan(1)
    trial = trial_of(plan, 0)
    desired = DesiredRuns(plan, "ledger")
    desired.apply(log.params_event(1.0, trial))
    desired.apply(log.end_event(1.0, trial.trial_id, Outcome(OutcomeKind.SKIPPED, "decided")))
    assert not any(key.startswith("trial/") for key in desired.runs)


@pytest.mark.parametrize(
    ("kinds", "status", "outcome", "reason"),
    [
        (("finished", "diverged", "diverged"), "FINISHED", "finished", "1 of 3 .*2 diverged"),
        (("crashed", "diverged", "diverged"), "FAILED", "diverged", "0 of 3 .*1 crashed, 2 diverged"),
    ],
)
def test_arm_states_how_many_of_its_seeds_failed(
    kinds: tuple[str, ...], status: str, outcome: str, reason: str
) -> None:
    plan = make_plan(2, trials_per_arm=0, seeds=(101, 102, 103))
    desired = DesiredRuns(plan, "ledger")
    for number, kind in enumerate((*kinds, *["finished"] * 3)):
        trial = trial_of(plan, number)
        desired.apply(log.params_event(1.0, trial))
        desired.apply(log.end_event(1.0, trial.trial_id, Outcome(OutcomeKind(kind), "why")))
    desired.apply(log.release_event(2.0, "done"))
    arm, other_arm = desired.runs["arm/arm-0"], desired.runs["arm/arm-1"]
    assert (arm.status, arm.tags["haltsweep.outcome"]) == (status, outcome)
    assert re.match(reason, arm.tags["haltsweep.reason"])
    assert (other_arm.status, other_arm.tags["haltsweep.reason"]) == ("FINISHED", "done")


def test_arm_has_the_confirmed_values_of_searched_fields_as_params() -> None:
    plan = make_plan(1, seeds=(101, 102))
    (path,) = (dimension.path for dimension in plan.arms[0].space.dimensions)
    desired = DesiredRuns(plan, "ledger")
    num_confirmed = 0
    for number, planned in enumerate(plan.trials):
        trial = trial_of(plan, number)
        if planned.phase == "confirm":
            num_confirmed += 1
            trial = replace(trial, assignment={path: 0.25 * num_confirmed})
        desired.apply(log.params_event(1.0, trial))
        desired.apply(log.start_event(1.0, trial.trial_id, 1))
        assert path not in desired.runs["arm/arm-0"].params, "no trial is confirmed yet"
        desired.apply(log.end_event(1.0, trial.trial_id, Outcome(OutcomeKind.FINISHED, "done")))
    assert desired.runs["arm/arm-0"].params[path] == "0.25, 0.5"


def run_seeds(plan: Plan, seeds: int, desired: DesiredRuns, first: int = 0) -> None:
    """Send confirm trials of `plan` to `desired`: one every 10 s, with 2 steps; odd trials diverge at the
    end."""
    for number in range(first, seeds):
        trial, at = trial_of(plan, number), 10.0 * number
        name = trial.trial_id
        desired.apply(log.params_event(at, trial))
        desired.apply(log.start_event(at + 1, name, 1))
        for step in (1, 2):
            metrics = {"valid/score": number + step / 10, "test/score": math.nan if step == 1 else 1.0}
            desired.apply(log.measurement_event(at + 1 + step, name, Measurement(step, 1.0, metrics)))
        kind = OutcomeKind.DIVERGED if number % 2 else OutcomeKind.FINISHED
        desired.apply(log.end_event(at + 5, name, Outcome(kind, "why")))


def test_arm_has_the_time_and_the_curves_of_its_trials() -> None:
    plan = make_plan(2, trials_per_arm=0, seeds=(101, 102, 103))
    desired = DesiredRuns(plan, "ledger")
    desired.apply(log.claim_event(0.0, HOLDER, "d", PROVENANCE))
    assert set(desired.runs) == {"sweep"}, "no arm has started"
    run_seeds(plan, 3, desired)
    arm = desired.runs["arm/arm-0"]
    assert (arm.status, arm.start_ms, arm.end_ms) == ("FINISHED", 1000, 25_000)
    assert re.match("2 of 3 .*1 diverged", arm.tags["haltsweep.reason"])
    assert arm.tags["mlflow.source.name"] == "haltsweep launch spec.yaml"
    assert desired.at_close == {}, "curves are added after all seeds have ended"
    run_seeds(plan, 6, desired, 3)
    desired.apply(log.release_event(99.0, "done"))
    assert desired.at_close["arm/arm-0"] == [
        Point(
            "curve-2-seeds/valid/score", pytest.approx(1 + step / 10), 99_000, step
        )  # mean of seeds 0 and 2
        for step in (1, 2)
    ] + [Point("time/running_seconds", 12.0, 99_000, 0)], "a single value is no curve"


def test_additional_seeds_create_another_curve() -> None:
    small_plan = make_plan(1, trials_per_arm=0, seeds=(101, 102, 103))
    large_plan = make_plan(1, trials_per_arm=0, seeds=(101, 102, 103, 104, 105))
    small_runs, large_runs = DesiredRuns(small_plan, "ledger"), DesiredRuns(large_plan, "ledger")
    for desired in (small_runs, large_runs):
        desired.apply(log.claim_event(0.0, HOLDER, "d", {}))
        run_seeds(small_plan, 3, desired)
        desired.apply(log.release_event(50.0, "done"))
    curve = list(small_runs.at_close["arm/arm-0"])
    assert large_runs.at_close["arm/arm-0"] == curve
    large_runs.apply(log.claim_event(60.0, HOLDER, "d", {}))
    assert large_runs.runs["arm/arm-0"].status == "RUNNING"
    run_seeds(large_plan, 5, large_runs, 3)
    large_runs.apply(log.release_event(70.0, "done"))
    added = large_runs.at_close["arm/arm-0"][len(curve) :]
    assert {point.key for point in added[:-1]} == {"curve-3-seeds/valid/score"}
    assert (curve[-1][1], added[-1]) == (12.0, Point("time/running_seconds", 20.0, 70_000, 1))
