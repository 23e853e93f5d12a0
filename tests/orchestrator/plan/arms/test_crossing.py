"""Plans in which arms run with the settings of other arms."""

import io
from collections import Counter

import pytest
from rich.console import Console

from orchestrator.errors import PlanError
from orchestrator.plan.display.render import render
from orchestrator.plan.extension.extending import changes_allowed, extend_plan
from orchestrator.plan.extension.extension_rules import RequestedWork
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import Extension
from tests.orchestrator.plan.small_specs import ARMS, CONFIRM, SEARCH, make_full_spec
from tests.support.specs.planned import plan
from tests.support.sweeps.repeated import repeated_plan

CROSS = {**CONFIRM, "cross": True}


def test_each_comparison_adds_two_cross_trials_for_each_seed_and_repeat():
    arms = {name: ARMS[name] for name in ("minus-gate", "no-halt")} | {"control": {"control": True}}
    search = {**SEARCH, "repeats": 2}
    crossed_plan, plain_plan = (
        plan(make_full_spec(arms=arms, search=search, confirm=CROSS)),
        plan(make_full_spec(arms=arms, search=search)),
    )
    added = Counter(
        (trial.arm, trial.settings_of, trial.repeat)
        for trial in crossed_plan.trials
        if trial.phase == "cross"
    )
    pairs = [("minus-gate", "baseline"), ("no-halt", "baseline")]
    ordered_pairs = [*pairs, *((reference, arm) for arm, reference in pairs)]
    assert added == {(*pair, repeat): 3 for pair in ordered_pairs for repeat in range(2)}
    assert [trial for trial in crossed_plan.trials if trial.phase != "cross"] == list(plain_plan.trials)
    assert from_json(to_json(crossed_plan)) == crossed_plan
    assert to_json(plain_plan) == to_json(
        plan(make_full_spec(arms=arms, search=search, confirm={**CONFIRM, "cross": False}))
    )
    console = Console(file=io.StringIO(), width=160)
    for part in render(crossed_plan):
        console.print(part)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    [columns] = [line for line in lines if line[:3] == ["arm", "search", "confirm"]]
    [total] = [line for line in lines if line[:1] == ["all"]]
    assert total[columns.index("cross")] == "24", "the plan must print the number of cross trials"


def test_ids_depend_on_the_search_of_the_other_arm():
    first_plan, second_plan = (
        plan(make_full_spec(confirm=CROSS, search={**SEARCH, "trials_per_arm": trials})) for trials in (3, 4)
    )
    ids = [
        {trial.trial_id for trial in sweep_plan.trials if trial.phase == "cross"}
        for sweep_plan in (first_plan, second_plan)
    ]
    assert len(ids[0]) == len(ids[1]) == 2 * len(ARMS) * 3
    assert not ids[0] & ids[1]


@pytest.mark.parametrize(
    "parts",
    [
        {"search": None, "posthoc": {}},
        {"confirm": {**CROSS, "best": 2}},
        {"confirm": {**CROSS, "seeds": 6, "stop": "decided"}},
        {"arms": {}},
        {"arms": {"control": {"control": True}}},
    ],
    ids=["no search", "several assignments", "stop", "no arms", "a control alone"],
)
def test_invalid_cross_is_refused(parts):
    with pytest.raises(PlanError) as raised:
        plan(make_full_spec(confirm=CROSS) if not parts else make_full_spec(**{"confirm": CROSS, **parts}))
    assert [fault.path for fault in raised.value.faults] == ["confirm.cross"]


def test_extension_of_a_crossed_plan_may_add_seeds_and_arms():
    old_plan, new_plan = (
        repeated_plan(1, seeds, others=others, cross=True) for seeds, others in (((1, 2), 1), ((1, 2, 3), 2))
    )
    progress = RequestedWork(searched=True, confirmed=True, decides=False)
    changes = changes_allowed(
        "one", {"confirm": {"seeds": [1, 2]}}, {"confirm": {"seeds": [1, 2, 3]}}, progress
    )
    asked_ids = [trial.trial_id for trial in old_plan.trials]
    extension = Extension(0.0, "extend", "", tuple(map(str, changes)), ("arm-0",), (1, 2), {})
    extended_plan = extend_plan(old_plan, new_plan, asked_ids, extension)
    trials_by_id = {trial.trial_id: trial for trial in extended_plan.trials}
    assert all(trials_by_id[trial.trial_id] == trial for trial in old_plan.trials)
    added_counts = Counter(
        (trial.arm, trial.settings_of)
        for trial in extended_plan.trials
        if trial.phase == "cross" and trial.trial_id not in asked_ids
    )
    assert added_counts == {
        ("arm-0", "arm-1"): 1,
        ("arm-1", "arm-0"): 1,
        ("arm-0", "arm-2"): 3,
        ("arm-2", "arm-0"): 3,
    }
    assert from_json(to_json(extended_plan)) == extended_plan
