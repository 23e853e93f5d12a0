"""Plans in which arms run with the settings of other arms."""

from collections import Counter

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.serialise import from_json, to_json
from tests.orchestrator.plan.small_specs import ARMS, CONFIRM, SEARCH, make_full_spec
from tests.support.specs.planned import plan

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
    [{"search": None, "posthoc": {}}, {"confirm": {**CROSS, "best": 2}}, {"arms": {}}],
    ids=["no search", "several assignments", "no arms"],
)
def test_invalid_cross_is_refused(parts):
    with pytest.raises(PlanError) as raised:
        plan(make_full_spec(confirm=CROSS) if not parts else make_full_spec(**{"confirm": CROSS, **parts}))
    assert [fault.path for fault in raised.value.faults] == ["confirm.cross"]
