"""Plans of repeated searches and of controls."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.plan.extension.extending import changes_allowed, extend_plan
from orchestrator.plan.extension.extension_rules import RequestedWork
from orchestrator.plan.planned_trials import confirm_seeds
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import Extension
from orchestrator.spec.load import load_spec
from tests.orchestrator.plan.small import ARMS, SEARCH, full
from tests.support.specs.planned import plan
from tests.support.sweeps.repeated import repeated_plan

CONTROLLED = {"minus-gate": ARMS["minus-gate"], "control": {"control": True}, "again": {"control": True}}
OWN = """
name: own
question: Is the control planned?
trainable: own_code_for_repeats:train
baseline: {lr: 0.1}
arms: {control: {control: true}}
"""


def test_every_repeat_costs_a_search_and_its_seeds():
    once, thrice = plan(full()), plan(full(search={**SEARCH, "repeats": 3}))
    before, after = (Counter((trial.arm, trial.phase) for trial in made.trials) for made in (once, thrice))
    assert after == Counter({key: 3 * count for key, count in before.items()})
    assert {trial.trial_id for trial in once.trials} < {trial.trial_id for trial in thrice.trials}
    assert (thrice.power.seeds, thrice.unit, thrice.num_units) == (3, "repeat", 3)
    assert from_json(to_json(thrice)) == thrice
    assert to_json(once) == to_json(plan(full(search={**SEARCH, "repeats": 1}))), "1 is the default"


def test_seeds_of_repeats_are_distinct_and_stay_when_repeats_are_added():
    few, many = confirm_seeds((101, 102), 2), confirm_seeds((101, 102), 5)
    assert few[:2] == (101, 102)
    assert many[: len(few)] == few
    assert len(set(many)) == 10


def test_a_control_is_planned_like_the_baseline_and_counted_in_no_correction():
    made = plan(full(arms=CONTROLLED, search={**SEARCH, "repeats": 3}))
    assert made.answer.family == 1
    assert [arm.name for arm in made.arms if arm.control] == ["control", "again"]
    assert made.arm("control").settings == made.baseline.settings
    assert made.arm("control").space == made.baseline.space
    ids = Counter(trial.trial_id for trial in made.trials)
    assert set(ids.values()) == {1}, "its trials are none of the baseline's"
    seeds = {
        arm: {trial.seed for trial in made.trials if (trial.arm, trial.phase) == (arm, "search")}
        for arm in ("baseline", "minus-gate", "control", "again")
    }
    assert seeds["baseline"] == seeds["minus-gate"]
    assert not seeds["baseline"] & seeds["control"]
    assert not seeds["again"] & seeds["control"]
    confirmed = {
        arm: [trial.seed for trial in made.trials if (trial.arm, trial.phase) == (arm, "confirm")]
        for arm in ("baseline", "control")
    }
    assert confirmed["baseline"] == confirmed["control"], "paired like any arm"


NO_REPEATS = (
    "{also: {lr: {float: [0.1, 1.0]}}, trials_per_arm: 2, repeats: 0, "
    "objectives: [{metric: valid/score, goal: max}]}"
)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("confirm: {seeds: 3}", "arms.control.control"),
        (f"search: {NO_REPEATS}", "search.repeats"),
    ],
)
def test_what_no_control_or_repeat_can_be(tmp_path: Path, text, place):
    (tmp_path / "own.yaml").write_text(OWN + text)
    with pytest.raises(SpecError) as raised:
        load_spec(tmp_path / "own.yaml")
    assert [fault.path for fault in raised.value.faults] == [place]


def test_a_control_sets_nothing(tmp_path: Path):
    (tmp_path / "own.yaml").write_text(
        OWN.replace("{control: true}", "{control: true, set: {lr: 0.2}}") + "confirm: {seeds: 3}"
    )
    with pytest.raises(SpecError) as raised:
        load_spec(tmp_path / "own.yaml")
    assert "arms.control.set" in [fault.path for fault in raised.value.faults]


def test_repeats_are_added_behind_those_there_are():
    old, new = repeated_plan(2), repeated_plan(4)
    before = {"search": {"trials_per_arm": 3, "repeats": 2}}
    after = {"search": {"trials_per_arm": 3, "repeats": 4}}
    progress = RequestedWork(searched=True, confirmed=True, decides=False)
    changes = changes_allowed("one", before, after, progress)
    asked = [trial.trial_id for trial in old.trials]
    extension = Extension(0.0, "extend", "", tuple(map(str, changes)), ("arm-0",), old.confirm.seeds, {})
    made = extend_plan(old, new, asked, extension)
    known = {trial.trial_id: trial for trial in made.trials}
    assert all(known[trial.trial_id] == trial for trial in old.trials)
    added = Counter((trial.phase, trial.repeat) for trial in made.trials if trial.trial_id not in {*asked})
    assert added == {("search", 2): 6, ("search", 3): 6, ("confirm", 2): 4, ("confirm", 3): 4}
    assert replace(made, extended=()).units == new.units
