"""Plans in which arms run at the settings of each other."""

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
from tests.orchestrator.plan.small import ARMS, CONFIRM, SEARCH, full
from tests.support.specs.planned import plan
from tests.support.sweeps.repeated import repeated_plan

CROSS = {**CONFIRM, "cross": True}


def test_every_comparison_costs_its_seeds_twice_more_in_every_repeat():
    arms = {name: ARMS[name] for name in ("minus-gate", "no-halt")} | {"control": {"control": True}}
    search = {**SEARCH, "repeats": 2}
    made, plain = plan(full(arms=arms, search=search, confirm=CROSS)), plan(full(arms=arms, search=search))
    added = Counter(
        (trial.arm, trial.settings_of, trial.repeat) for trial in made.trials if trial.phase == "cross"
    )
    pairs = [("minus-gate", "baseline"), ("no-halt", "baseline")]
    both = [*pairs, *((reference, arm) for arm, reference in pairs)]
    assert added == {(*pair, repeat): 3 for pair in both for repeat in range(2)}
    assert [trial for trial in made.trials if trial.phase != "cross"] == list(plain.trials)
    assert from_json(to_json(made)) == made
    assert to_json(plain) == to_json(
        plan(full(arms=arms, search=search, confirm={**CONFIRM, "cross": False}))
    )
    console = Console(file=io.StringIO(), width=160)
    for part in render(made):
        console.print(part)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    [columns] = [line for line in lines if line[:3] == ["arm", "search", "confirm"]]
    [total] = [line for line in lines if line[:1] == ["all"]]
    assert total[columns.index("cross")] == "24", "the plan shows what it costs"


def test_ids_differ_with_what_the_other_arm_searches():
    one, other = (plan(full(confirm=CROSS, search={**SEARCH, "trials_per_arm": trials})) for trials in (3, 4))
    ids = [{trial.trial_id for trial in made.trials if trial.phase == "cross"} for made in (one, other)]
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
def test_what_cannot_be_crossed_is_refused(parts):
    with pytest.raises(PlanError) as raised:
        plan(full(confirm=CROSS) if not parts else full(**{"confirm": CROSS, **parts}))
    assert [fault.path for fault in raised.value.faults] == ["confirm.cross"]


def test_seeds_and_arms_may_be_added():
    old, new = (
        repeated_plan(1, seeds, others=others, cross=True) for seeds, others in (((1, 2), 1), ((1, 2, 3), 2))
    )
    begun = RequestedWork(searched=True, confirmed=True, decides=False)
    changes = changes_allowed("one", {"confirm": {"seeds": [1, 2]}}, {"confirm": {"seeds": [1, 2, 3]}}, begun)
    asked = [trial.trial_id for trial in old.trials]
    extension = Extension(0.0, "extend", "", tuple(map(str, changes)), ("arm-0",), (1, 2), {})
    made = extend_plan(old, new, asked, extension)
    known = {trial.trial_id: trial for trial in made.trials}
    assert all(known[trial.trial_id] == trial for trial in old.trials)
    added = Counter(
        (trial.arm, trial.settings_of)
        for trial in made.trials
        if trial.phase == "cross" and trial.trial_id not in asked
    )
    assert added == {
        ("arm-0", "arm-1"): 1,
        ("arm-1", "arm-0"): 1,
        ("arm-0", "arm-2"): 3,
        ("arm-2", "arm-0"): 3,
    }
    assert from_json(to_json(made)) == made
