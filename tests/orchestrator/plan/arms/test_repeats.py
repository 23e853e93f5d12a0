"""Plans with repeated searches and with control arms."""

from collections import Counter
from pathlib import Path

from orchestrator.plan.planned_trials import confirm_seeds
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.spec.load import load_spec
from tests.orchestrator.plan.small_specs import ARMS, SEARCH, make_full_spec
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults

CONTROLLED = {"minus-gate": ARMS["minus-gate"], "control": {"control": True}, "again": {"control": True}}
CUSTOM_SPEC = """
name: own
question: Is the control planned?
trainable: own_code_for_repeats:train
baseline: {lr: 0.1}
arms: {control: {control: true}}
"""


def test_every_repeat_adds_a_search_and_its_confirm_seeds():
    single_plan, repeated_plan_ = (
        plan(make_full_spec()),
        plan(make_full_spec(search={**SEARCH, "repeats": 3})),
    )
    before, after = (
        Counter((trial.arm, trial.phase) for trial in sweep_plan.trials)
        for sweep_plan in (single_plan, repeated_plan_)
    )
    assert after == Counter({key: 3 * count for key, count in before.items()})
    assert {trial.trial_id for trial in single_plan.trials} < {
        trial.trial_id for trial in repeated_plan_.trials
    }
    assert (repeated_plan_.power.seeds, repeated_plan_.unit, repeated_plan_.num_units) == (3, "repeat", 3)
    assert from_json(to_json(repeated_plan_)) == repeated_plan_
    assert to_json(single_plan) == to_json(plan(make_full_spec(search={**SEARCH, "repeats": 1}))), (
        "repeats must default to 1"
    )


def test_seeds_of_repeats_are_distinct_and_stable():
    two_repeats, five_repeats = confirm_seeds((101, 102), 2), confirm_seeds((101, 102), 5)
    assert two_repeats[:2] == (101, 102)
    assert five_repeats[: len(two_repeats)] == two_repeats
    assert len(set(five_repeats)) == 10


def test_control_is_planned_like_the_baseline_without_a_correction():
    sweep_plan = plan(make_full_spec(arms=CONTROLLED, search={**SEARCH, "repeats": 3}))
    assert sweep_plan.answer.family == 1
    assert [arm.name for arm in sweep_plan.arms if arm.control] == ["control", "again"]
    assert sweep_plan.arm("control").settings == sweep_plan.baseline.settings
    assert sweep_plan.arm("control").space == sweep_plan.baseline.space
    ids = Counter(trial.trial_id for trial in sweep_plan.trials)
    assert set(ids.values()) == {1}, "a control must have different trials"
    seeds = {
        arm: {trial.seed for trial in sweep_plan.trials if (trial.arm, trial.phase) == (arm, "search")}
        for arm in ("baseline", "minus-gate", "control", "again")
    }
    assert seeds["baseline"] == seeds["minus-gate"]
    assert not seeds["baseline"] & seeds["control"]
    assert not seeds["again"] & seeds["control"]
    confirm_seeds_by_arm = {
        arm: [trial.seed for trial in sweep_plan.trials if (trial.arm, trial.phase) == (arm, "confirm")]
        for arm in ("baseline", "control")
    }
    assert confirm_seeds_by_arm["baseline"] == confirm_seeds_by_arm["control"], (
        "a control must be paired like any arm"
    )


def test_control_without_a_search_is_refused(tmp_path: Path):
    (tmp_path / "own.yaml").write_text(CUSTOM_SPEC + "confirm: {seeds: 3}")
    with expect_faults("conflicting-fields", "arms.control.control"):
        load_spec(tmp_path / "own.yaml")
