"""Names and texts that MLflow takes, whatever they are made of."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.ledger import events as log
from orchestrator.tracking.desired_runs import DesiredRuns, as_params, metric_key
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.histories import trial_of
from tests.support.plans import make_plan


@given(st.text(st.characters(), min_size=1))
@example("a//b")
@example("../x")
@example("/")
@example("x" * 300)
def test_any_name_becomes_one_that_mlflow_takes(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    assert _validate_metric_name(metric_key(name)) is None, "MLflow raises for others"
    assert metric_key(name)


def test_long_names_stay_apart() -> None:
    assert metric_key("x" * 300) != metric_key("x" * 301)


@pytest.mark.parametrize("name", ["valid/accuracy", "near-iid/depth_p10", "time/seconds"])
def test_common_names_are_left_alone(name: str) -> None:
    assert metric_key(name) == name


def test_texts_are_shown_as_they_stand() -> None:
    assert as_params({"train.note": "\x1b[2J<b>"}) == {"train.note": r"\x1b[2J<b>"}


@pytest.mark.parametrize(("kind", "runs"), [(OutcomeKind.SKIPPED, 0), (OutcomeKind.CRASHED, 1)])
def test_a_trial_that_need_not_run_has_no_run(kind: OutcomeKind, runs: int) -> None:
    plan = make_plan(1)
    trial = trial_of(plan, 0)
    desired = DesiredRuns(plan, "ledger")
    desired.hear(log.asked(1.0, trial))
    desired.hear(log.ended(1.0, trial.trial_id, Outcome(kind, "for a reason")))
    assert sum(key.startswith("trial/") for key in desired.runs) == runs


@pytest.mark.parametrize(
    ("kinds", "status", "outcome", "reason"),
    [
        (("finished", "finished", "finished"), "FINISHED", "finished", "done"),
        (
            ("finished", "diverged", "diverged"),
            *("FINISHED", "finished", "1 of 3 confirm trials finished: 2 diverged"),
        ),
        (
            ("crashed", "diverged", "diverged"),
            *("FAILED", "diverged", "0 of 3 confirm trials finished: 1 crashed, 2 diverged"),
        ),
        (("finished", "skipped", "skipped"), "FINISHED", "finished", "done"),
    ],
)
def test_an_arm_says_how_many_of_its_seeds_failed(
    kinds: tuple[str, ...], status: str, outcome: str, reason: str
) -> None:
    plan = make_plan(2, trials_per_arm=0, seeds=(101, 102, 103))
    desired = DesiredRuns(plan, "ledger")
    for number, kind in enumerate((*kinds, *["finished"] * 3)):
        trial = trial_of(plan, number)
        desired.hear(log.asked(1.0, trial))
        desired.hear(log.ended(1.0, trial.trial_id, Outcome(OutcomeKind(kind), "why")))
    desired.hear(log.closed(2.0, "done"))
    arm, other = desired.runs["arm/arm-0"], desired.runs["arm/arm-1"]
    told = (arm.status, arm.tags["haltsweep.outcome"], arm.tags["haltsweep.reason"])
    assert told == (status, outcome, reason)
    assert (other.status, other.tags["haltsweep.reason"]) == ("FINISHED", "done")


def test_a_verdict_is_a_tag_of_its_arm() -> None:
    plan = make_plan(2)
    desired = DesiredRuns(plan, "ledger")
    desired.hear(log.asked(1.0, trial_of(plan, 0)))
    words = {"arm-1": {"verdict": "arm-1: better", "verdict.iid/a%b": "\x1b[2J"}, "gone": {"verdict": "x"}}
    assert desired.publish_words(words) == {
        "arm/arm-1": {"haltsweep.verdict": "arm-1: better", "haltsweep.verdict.iid/a_b": r"\x1b[2J"}
    }
