"""Plans with more in them: what was planned stays, what cannot be is refused with reasons."""

from dataclasses import replace

import pytest

from orchestrator.errors import InputError
from orchestrator.plan.extension.extending import changes_allowed, extend_plan
from orchestrator.plan.extension.extension_rules import CAN, RequestedWork
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
FRESH = RequestedWork(searched=False, confirmed=False, decides=False)
SEARCHED = RequestedWork(searched=True, confirmed=False, decides=False)
DONE = RequestedWork(searched=True, confirmed=True, decides=False)
OWN = RequestedWork(searched=True, confirmed=True, decides=False, has_custom_trainable=True)
LOOKING = RequestedWork(searched=True, confirmed=True, decides=True)
WIDE = {"why": "more", "set": {"model.width": 64}, "drop": []}


def changed(path, value):
    """SPEC with a value at a path, taken away if it is None."""
    keys = path.split(" ")

    def put(inner, keys):
        key, *rest = keys
        if not rest and value is None:
            return {name: each for name, each in inner.items() if name != key}
        return inner | {key: put(inner.get(key, {}), rest) if rest else value}

    return put(SPEC, keys)


@pytest.mark.parametrize(
    ("path", "value", "begun"),
    [
        ("arms wide", WIDE, DONE),
        ("arms small why", "even less", DONE),
        ("grid model.heads", [2, 4, 8], DONE),
        ("confirm seeds", [1, 2, 3], DONE),
        ("search trials_per_arm", 5, SEARCHED),
        ("posthoc model.halt.threshold", [0.9, 0.5], DONE),
        ("posthoc model.max_layers", [9], DONE),
        ("answer spread", 0.1, DONE),
        ("answer metric", "test/f1", SEARCHED),
        ("confirm splits", ["long"], SEARCHED),
        ("confirm splits", ["test", "long"], DONE),
        ("confirm splits", ["test", "long"], LOOKING),
        ("budget wall_clock_hours", 9.0, DONE),
        ("resources retries", 9, DONE),
        ("question", "which one?", DONE),
        ("published", [{"arm": "small"}], DONE),
    ],
)
def test_what_can_be_added(path, value, begun):
    after = changed(path, value)
    (found,) = changes_allowed("one", SPEC, after, begun)
    assert found.path == path.replace(" ", ".")


@pytest.mark.parametrize(
    ("path", "value", "begun", "why"),
    [
        ("name", "two", FRESH, "a sweep keeps its name"),
        ("trainable", "my:code", FRESH, "what ran must be what runs"),
        ("baseline train steps", 8, DONE, "the settings of every arm follow from it"),
        ("arms small", None, DONE, "a requested arm cannot be removed"),
        ("arms small set model.width", 9, DONE, "an arm cannot change after its trials ran"),
        ("arms wide", WIDE, LOOKING, "with stop: decided, an arm more would change"),
        ("grid model.heads", [2], DONE, "requested values cannot be removed"),
        ("grid model.width", [2, 4], DONE, "the change would alter every arm"),
        ("search sampler name", "random", DONE, "must be drawn and stopped alike"),
        ("search trials_per_arm", 2, SEARCHED, "requested values cannot be removed"),
        ("search trials_per_arm", 5, DONE, "more trials may give other winners"),
        ("search", None, DONE, "the search cannot change once confirmation has started"),
        ("confirm", None, DONE, "requested values cannot be removed"),
        ("confirm seeds", [2, 1, 3], DONE, r"they must begin with \[1, 2\]"),
        ("confirm seeds", [1, 2, 3], LOOKING, "with stop: decided, a seed more would change"),
        ("confirm splits", ["long", "test"], DONE, r"they must begin with \[test\]"),
        ("confirm splits", None, DONE, r"they must begin with \[test\]"),
        ("confirm splits", ["test", "long"], OWN, "requested without the new splits; `evaluate`"),
        ("confirm best", 2, DONE, "confirm trials have already run with the old value"),
        ("answer metric", "test/f1", DONE, "the answer cannot change after confirm trials have started"),
        ("posthoc", None, DONE, "requested values cannot be removed"),
        ("posthoc model.halt.threshold", [0.9], DONE, "requested values cannot be removed"),
        ("resources cpus", 2.0, DONE, "all trials must have the same resources"),
        ("budget each_arm", {"target": 1.0}, DONE, "the limits of a search affect its result"),
        ("budget flops", 1e9, DONE, "may not have reported FLOPs"),
    ],
)
def test_what_cannot_be_is_refused_with_before_after_and_why(path, value, begun, why):
    with pytest.raises(InputError, match=why) as raised:
        changes_allowed("one", SPEC, changed(path, value), begun)
    first, change, reason, last = str(raised.value).split("\n")
    assert first == "one cannot be extended by this:"
    assert change.startswith(f"  {path.replace(' ', '.')}: ")
    assert " -> " in change
    assert reason.startswith("    ")
    assert last == CAN


def test_all_that_is_refused_is_told_at_once_and_nothing_else():
    after = changed("name", "two") | {"question": "other?", "trainable": "my:code"}
    with pytest.raises(InputError) as raised:
        changes_allowed("one", SPEC, after, DONE)
    assert [line for line in str(raised.value).split("\n") if " -> " in line] == [
        "  name: one -> two",
        "  trainable: (nothing) -> my:code",
    ]


def test_what_was_asked_for_already():
    with pytest.raises(InputError, match="nothing to extend: one already has these settings"):
        changes_allowed("one", SPEC, dict(SPEC), DONE)


def added(old, **more):
    names = tuple(arm.name for arm in old.arms)
    known = {"at": 1.0, "by": "haltsweep extend", "changes": ("x: 1 -> 2",), "seen": {}} | more
    return Extension(spec_digest=old.spec_digest, arms=names, seeds=old.confirm.seeds, **known)


def by_content(plan):
    """With the ids that a planner gives."""
    return replace(plan, trials=tuple(planned_trials(plan.arms, plan.search, plan.confirm, plan.posthoc)))


THRESHOLDS = ({"model.shift": 0.5},)


def test_trials_keep_ids_and_numbers_and_new_ones_come_behind():
    old = by_content(make_plan(1, best=2, seeds=(1, 2), posthoc=THRESHOLDS))
    new = by_content(make_plan(2, best=2, seeds=(1, 2, 3), posthoc=({"model.shift": 0.1}, *THRESHOLDS)))
    asked = {trial.trial_id for trial in old.trials}
    found = extend_plan(old, new, asked, added(old))
    by_id = {trial.trial_id: trial for trial in found.trials}
    assert {trial.trial_id: by_id[trial.trial_id] for trial in old.trials} == {
        trial.trial_id: trial for trial in old.trials
    }
    assert by_id.keys() == {trial.trial_id for trial in new.trials}
    places = [(trial.arm, trial.phase, trial.number) for trial in found.trials]
    assert len(set(places)) == len(places)
    confirms = [trial for trial in found.trials if (trial.arm, trial.phase) == ("arm-0", "confirm")]
    assert [(state.rank, state.seed) for state in confirms] == [
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 2),
        (0, 3),
        (1, 3),
    ]
    assert from_json(to_json(found)) == found
    assert "extended" not in to_json(new), "plans that were never extended are the bytes they were"


def test_an_arm_or_a_trial_that_would_be_lost_is_refused():
    old = make_plan(2)
    asked = {trial.trial_id for trial in old.trials}
    with pytest.raises(InputError, match="arm arm-1: would not be there any more"):
        extend_plan(old, make_plan(1), asked, added(old))
    other = replace(old, arms=(replace(old.arms[0], digest="other"), old.arms[1]))
    with pytest.raises(InputError, match="arm arm-0: would have other settings, ranges, first points"):
        extend_plan(old, other, asked, added(old))
    ids = {old.trials[0].trial_id: "0000"}
    moved = tuple(replace(trial, trial_id=ids.get(trial.trial_id, trial.trial_id)) for trial in old.trials)
    with pytest.raises(InputError, match=r"trial arm-0/search/0 \(\w+\): would be another one, or none"):
        extend_plan(old, replace(old, trials=moved), asked, added(old))
    found = extend_plan(old, replace(old, trials=moved), set(), added(old))
    assert {trial.trial_id for trial in found.trials} == {each.trial_id for each in moved}


def with_splits(plan, *splits):
    return replace(plan, confirm=replace(plan.confirm, splits=splits))


def late(plan):
    return [trial for trial in plan.trials if trial.late_splits]


def test_splits_are_read_by_trials_of_their_own_where_the_others_were_asked_for():
    old = by_content(make_plan(1, seeds=(1, 2, 3), posthoc=THRESHOLDS))
    confirms = [trial for trial in old.trials if trial.phase == "confirm"]
    (first,) = (trial for trial in old.trials if trial.phase == "posthoc" and trial.seed == 1)
    asked = {confirms[0].trial_id, confirms[1].trial_id, first.trial_id}
    new = with_splits(by_content(make_plan(1, seeds=(1, 2, 3, 4), posthoc=THRESHOLDS)), "test", "long")
    found = extend_plan(old, new, asked, added(old), {confirms[1].trial_id})
    assert [(each.seed, dict(each.overrides), each.late_splits) for each in late(found)] == [
        (1, {}, ("long",)),
        (1, {"model.shift": 0.5}, ("long",)),
    ], "of what diverged nothing is read, and who was not asked for yet reads all by itself"
    assert {trial.trial_id for trial in old.trials} < {trial.trial_id for trial in found.trials}
    assert from_json(to_json(found)) == found
    assert "late_splits" not in to_json(old), "other plans are the bytes they were"
    everything = {trial.trial_id for trial in found.trials}
    more = with_splits(new, "test", "long", "longer")
    newer = extend_plan(found, more, everything, added(found))
    assert [each for each in late(newer) if each.late_splits == ("long",)] == late(found)
    again = [each for each in late(newer) if each.late_splits == ("longer",)]
    assert len(again) == 4 + 4, "every confirm trial and every reading of one, those of splits aside"
    numbers = [(trial.arm, trial.phase, trial.number) for trial in newer.trials]
    assert len(set(numbers)) == len(numbers)
    assert from_json(to_json(newer)) == newer


def test_a_first_split_must_not_change_what_decides():
    old = by_content(make_plan(1))
    new = replace(old, answer=AnswerPlan(("long/score",), None, 0.05, 1))
    asked = {trial.trial_id for trial in old.trials}
    with pytest.raises(InputError, match="the primary outcome: nothing -> long/score, after confirm trials"):
        extend_plan(old, new, asked, added(old))
