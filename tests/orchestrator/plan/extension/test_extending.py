"""An extended plan keeps its trials, and changes that are impossible are refused with reasons."""

from dataclasses import replace

import pytest

from orchestrator.errors import InputError
from orchestrator.plan.extension.extending import allowed_changes, extend_plan
from orchestrator.plan.extension.extension_rules import ADDABLE_PARTS, RequestedWork
from orchestrator.plan.planned_trials import planned_trials
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import AnswerPlan, Extension
from tests.support.specs.plans import make_plan

SPEC = {
    "name": "one",
    "question": "which?",
    "baseline": {"task": {"name": "listops"}, "train": {"steps": 4}},
    "arms": {"small": {"why": "less", "set": {"model.width": 8}, "drop": []}},
    "grid": {"model.heads": [2, 4]},
    "search": {"trials_per_arm": 3, "sampler": {"name": "tpe"}},
    "confirm": {"best": 1, "seeds": [1, 2], "splits": ["test"]},
    "answer": {"metric": "test/accuracy"},
    "posthoc": {"model.halt.threshold": [0.5]},
    "resources": {"cpus": 1.0, "retries": 3},
    "budget": {"wall_clock_hours": 1.0},
}
SEARCHED = RequestedWork(searched=True, confirmed=False, decides=False)
DONE = RequestedWork(searched=True, confirmed=True, decides=False)
CUSTOM_DONE = RequestedWork(searched=True, confirmed=True, decides=False, has_custom_trainable=True)
DECIDING = RequestedWork(searched=True, confirmed=True, decides=True)
WIDE = {"why": "more", "set": {"model.width": 64}, "drop": []}


def changed_spec(path, value):
    """Return SPEC with a value at a path, or without the path if the value is None."""
    keys = path.split(" ")

    def put(inner, keys):
        key, *rest = keys
        if not rest and value is None:
            return {name: value for name, value in inner.items() if name != key}
        return inner | {key: put(inner.get(key, {}), rest) if rest else value}

    return put(SPEC, keys)


@pytest.mark.parametrize(
    ("path", "value", "progress"),
    [
        ("arms wide", WIDE, DONE),
        ("grid model.heads", [2, 4, 8], DONE),
        ("confirm seeds", [1, 2, 3], DONE),
        ("search trials_per_arm", 5, SEARCHED),
        ("posthoc model.halt.threshold", [0.9, 0.5], DONE),
        ("answer metric", "test/f1", SEARCHED),
        ("confirm splits", ["long"], SEARCHED),
        ("confirm splits", ["test", "long"], DONE),
        ("budget wall_clock_hours", 9.0, DONE),
    ],
)
def test_extension_may_add_parts(path, value, progress):
    new_spec = changed_spec(path, value)
    (change,) = allowed_changes("one", SPEC, new_spec, progress)
    assert change.path == path.replace(" ", ".")


@pytest.mark.parametrize(
    ("path", "value", "progress"),
    [
        ("baseline train steps", 8, DONE),
        ("arms small", None, DONE),
        ("arms wide", WIDE, DECIDING),
        ("grid model.heads", [2], DONE),
        ("search trials_per_arm", 5, DONE),
        ("confirm seeds", [2, 1, 3], DONE),
        ("confirm seeds", [1, 2, 3], DECIDING),
        ("confirm splits", ["long", "test"], DONE),
        ("confirm splits", ["test", "long"], CUSTOM_DONE),
        ("answer metric", "test/f1", DONE),
        ("posthoc model.halt.threshold", [0.9], DONE),
    ],
)
def test_impossible_change_is_refused_with_before_after_and_reason(path, value, progress):
    with pytest.raises(InputError) as raised:
        allowed_changes("one", SPEC, changed_spec(path, value), progress)
    _, change, reason, last_line = str(raised.value).split("\n")
    assert change.startswith(f"  {path.replace(' ', '.')}: ")
    assert " -> " in change
    assert reason.startswith("    ")
    assert last_line == ADDABLE_PARTS


def test_all_refused_changes_are_listed_at_once():
    new_spec = changed_spec("name", "two") | {"question": "other?", "trainable": "my:code"}
    with pytest.raises(InputError) as raised:
        allowed_changes("one", SPEC, new_spec, DONE)
    changes = [line for line in str(raised.value).split("\n") if " -> " in line]
    assert [line.partition(":")[0] for line in changes] == ["  name", "  trainable"]


def test_extension_without_a_change_is_refused():
    with pytest.raises(InputError, match="one"):
        allowed_changes("one", SPEC, dict(SPEC), DONE)


def make_extension(old_plan, **fields):
    names = tuple(arm.name for arm in old_plan.arms)
    all_fields = {"at": 1.0, "by": "haltsweep extend", "changes": ("x: 1 -> 2",), "seen": {}} | fields
    return Extension(spec_digest=old_plan.spec_digest, arms=names, seeds=old_plan.confirm.seeds, **all_fields)


def with_content_ids(plan):
    """Return the plan with ids as a planner creates them."""
    return replace(plan, trials=tuple(planned_trials(plan.arms, plan.search, plan.confirm, plan.posthoc)))


THRESHOLDS = ({"model.shift": 0.5},)


def test_trials_keep_ids_and_numbers_and_new_trials_are_appended():
    old_plan = with_content_ids(make_plan(1, best=2, seeds=(1, 2), posthoc=THRESHOLDS))
    new_plan = with_content_ids(
        make_plan(2, best=2, seeds=(1, 2, 3), posthoc=({"model.shift": 0.1}, *THRESHOLDS))
    )
    asked_ids = {trial.trial_id for trial in old_plan.trials}
    extended_plan = extend_plan(old_plan, new_plan, asked_ids, make_extension(old_plan))
    by_id = {trial.trial_id: trial for trial in extended_plan.trials}
    assert {trial.trial_id: by_id[trial.trial_id] for trial in old_plan.trials} == {
        trial.trial_id: trial for trial in old_plan.trials
    }
    assert by_id.keys() == {trial.trial_id for trial in new_plan.trials}
    places = [(trial.arm, trial.phase, trial.number) for trial in extended_plan.trials]
    assert len(set(places)) == len(places)
    confirms = [trial for trial in extended_plan.trials if (trial.arm, trial.phase) == ("arm-0", "confirm")]
    assert [(state.rank, state.seed) for state in confirms] == [
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 2),
        (0, 3),
        (1, 3),
    ]
    assert from_json(to_json(extended_plan)) == extended_plan
    assert "extended" not in to_json(new_plan), "the file of a plan without extensions must not change"


def test_extension_that_loses_an_arm_or_a_trial_is_refused():
    old_plan = make_plan(2)
    asked_ids = {trial.trial_id for trial in old_plan.trials}
    with pytest.raises(InputError, match="arm-1"):
        extend_plan(old_plan, make_plan(1), asked_ids, make_extension(old_plan))
    changed_plan = replace(old_plan, arms=(replace(old_plan.arms[0], digest="other"), old_plan.arms[1]))
    with pytest.raises(InputError, match="arm-0"):
        extend_plan(old_plan, changed_plan, asked_ids, make_extension(old_plan))
    ids = {old_plan.trials[0].trial_id: "0000"}
    moved = tuple(
        replace(trial, trial_id=ids.get(trial.trial_id, trial.trial_id)) for trial in old_plan.trials
    )
    with pytest.raises(InputError, match="arm-0/search/0"):
        extend_plan(old_plan, replace(old_plan, trials=moved), asked_ids, make_extension(old_plan))


def with_splits(plan, *splits):
    return replace(plan, confirm=replace(plan.confirm, splits=splits))


def late_trials(plan):
    return [trial for trial in plan.trials if trial.late_splits]


def test_added_splits_are_measured_by_separate_trials_after_earlier_ones():
    old_plan = with_content_ids(make_plan(1, seeds=(1, 2, 3), posthoc=THRESHOLDS))
    confirms = [trial for trial in old_plan.trials if trial.phase == "confirm"]
    (posthoc,) = (trial for trial in old_plan.trials if trial.phase == "posthoc" and trial.seed == 1)
    asked_ids = {confirms[0].trial_id, confirms[1].trial_id, posthoc.trial_id}
    new_plan = with_splits(
        with_content_ids(make_plan(1, seeds=(1, 2, 3, 4), posthoc=THRESHOLDS)), "test", "long"
    )
    extended_plan = extend_plan(
        old_plan, new_plan, asked_ids, make_extension(old_plan), {confirms[1].trial_id}
    )
    assert [
        (trial.seed, dict(trial.overrides), trial.late_splits) for trial in late_trials(extended_plan)
    ] == [(1, {}, ("long",)), (1, {"model.shift": 0.5}, ("long",))], (
        "diverged trials must have no late trials, and new trials must measure all splits"
    )
    assert {trial.trial_id for trial in old_plan.trials} < {trial.trial_id for trial in extended_plan.trials}
    assert from_json(to_json(extended_plan)) == extended_plan
    assert "late_splits" not in to_json(old_plan), "the file of a plan without late splits must not change"


def test_first_split_must_not_change_the_primary_outcome_after_confirm():
    old_plan = with_content_ids(make_plan(1))
    new_plan = replace(old_plan, answer=AnswerPlan(("long/score",), None, 0.05, 1))
    asked_ids = {trial.trial_id for trial in old_plan.trials}
    with pytest.raises(InputError, match=" -> long/score"):
        extend_plan(old_plan, new_plan, asked_ids, make_extension(old_plan))
