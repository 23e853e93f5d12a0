"""Contexts cross arms as a grid does, and each has a baseline of its own that no other is compared with."""

import io

import pytest
from rich.console import Console

from orchestrator.errors import InputError, PlanError
from orchestrator.plan.display.render import plan_warnings, render
from orchestrator.plan.extension.extending import changes_allowed, extend_plan
from orchestrator.plan.extension.extension_rules import RequestedWork
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import Extension
from tests.orchestrator.plan.small import CONFIRM, one_arm, spec
from tests.support.specs.planned import plan

CONTEXTS = {"task.train_length_max": [50, 100]}
GATE = {"model.gate": False}


def crossed(**parts):
    return one_arm(GATE, name="minus-gate", **{"contexts": CONTEXTS} | parts)


def test_every_arm_has_the_baseline_of_its_context_for_reference():
    found = plan(crossed())
    easy, hard = (f"[task.train_length_max={most}]" for most in (50, 100))
    assert {arm.name: arm.reference for arm in found.arms} == {
        f"baseline{easy}": "",
        f"baseline{hard}": "",
        f"minus-gate{easy}": f"baseline{easy}",
        f"minus-gate{hard}": f"baseline{hard}",
    }
    assert [arm.settings["task"]["train_length_max"] for arm in found.arms] == [50, 100, 50, 100]
    assert [arm.context for arm in found.arms] == 2 * [
        {"task.train_length_max": 50},
        {"task.train_length_max": 100},
    ]
    assert [arm.name_in_context for arm in found.arms] == 2 * ["baseline"] + 2 * ["minus-gate"]
    assert [[change.path for change in arm.changes] for arm in found.arms] == [
        [],
        [],
        ["model.gate"],
        ["model.gate"],
    ]
    assert [proof.evidence == () for proof in found.proofs] == [True, True, False, False]
    assert (found.answer.family, found.power.comparisons) == (2, 2)
    assert from_json(to_json(found)) == found


def test_a_search_is_one_of_an_arm_in_a_context():
    search = {
        "also": {"train.lr": {"float": [1e-4, 1e-3]}},
        "trials_per_arm": 3,
        "sampler": "random",
        "objectives": [{"metric": "valid/accuracy", "goal": "max"}],
    }
    found = plan(crossed(search=search))
    searched = [trial for trial in found.trials if trial.phase == "search"]
    assert len(searched) == len({trial.trial_id for trial in searched}) == 4 * 3
    assert {trial.arm for trial in searched} == {arm.name for arm in found.arms}


def test_several_fields_are_crossed_and_a_grid_stays_one_inside_each_context():
    contexts = CONTEXTS | {"task.depth_max": [4, 8]}
    assert len(plan(crossed(contexts=contexts)).arms) == 2 * 4
    found = plan(crossed(grid={"model.heads": [2, 4]}))
    references = {arm.name: arm.reference for arm in found.arms}
    for most in (50, 100):
        cells = [f"[task.train_length_max={most},model.heads={heads}]" for heads in (2, 4)]
        assert references[f"baseline{cells[0]}"] == ""
        assert references[f"baseline{cells[1]}"] == f"baseline{cells[0]}"
        for cell in cells:
            assert references[f"minus-gate{cell}"] == f"baseline{cell}"
    assert found.answer.family == 2 * 3


def test_a_pool_is_one_comparison_more_for_each_arm():
    answer = {"metric": "near-iid/accuracy", "also": ["near-iid/loss"], "pool": "contexts"}
    found = plan(crossed(answer=answer, grid={"model.heads": [2, 4]}))
    assert found.answer.pooled
    assert found.answer.family == 2 * (2 * 3 + 3)
    assert found.pools.keys() == {
        "baseline[model.heads=4]",
        "minus-gate[model.heads=2]",
        "minus-gate[model.heads=4]",
    }


def test_an_arm_that_changes_nothing_is_refused_in_its_context():
    """Whatever tells the contexts apart."""
    arms = {"same": {"why": "nothing", "set": {"model.gate": True}}}
    with pytest.raises(PlanError, match="must differ from the baseline, which has true already"):
        plan(spec(arms=arms, contexts=CONTEXTS))


@pytest.mark.parametrize(
    ("field", "values"), [("train.eval_batch_size", [64, 128]), ("train.clip", [1.0, 1.0e7, 1.0e8])]
)
def test_baselines_of_contexts_need_not_differ_in_what_they_do(field, values):
    assert len(plan(crossed(contexts={field: values})).arms) == 2 * len(values)
    with pytest.raises(PlanError):
        plan(crossed(contexts={}, grid={field: values}))


def test_two_contexts_of_the_same_settings_are_refused():
    contexts = {"model.halt": [{"unit": "token"}, {"unit": "token", "threshold": 0.999}]}
    with pytest.raises(PlanError, match=r"contexts\.model\.halt: baseline.* has the same settings as"):
        plan(crossed(contexts=contexts))


def test_the_plan_shows_what_a_context_sets():
    console = Console(file=io.StringIO(), width=120)
    for part in render(plan(crossed())):
        console.print(part)
    shown = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["task.train_length_max", "100"] in shown


def test_tasks_are_contexts_and_no_grid():
    """Cells of a grid are compared with each other, so they need the same tests."""
    tasks, confirm = {"task.name": ["listops", "listops_depth"]}, {"seeds": [1, 2, 3]}
    with pytest.raises(PlanError, match=r"grid\.task\.name: .* contexts: {task\.name: "):
        plan(spec(grid=tasks, confirm=confirm))
    found = plan(spec(contexts=tasks, confirm=confirm))
    assert not any("under contexts instead of grid" in line for line in plan_warnings(found))


DONE = RequestedWork(searched=True, confirmed=True, decides=False)


def test_a_value_of_a_context_can_be_added_and_its_trials_come_beside():
    before, after = (crossed(contexts={"task.train_length_max": each}) for each in ([50, 100], [50, 100, 70]))
    (change,) = changes_allowed("small", before.content(), after.content(), DONE)
    assert change.path == "contexts.task.train_length_max"
    old, new = plan(before), plan(after)
    extension = Extension(0.0, "x", "0", ("x",), tuple(a.name for a in old.arms), old.confirm.seeds, {})
    found = extend_plan(old, new, {trial.trial_id for trial in old.trials}, extension)
    assert {trial.trial_id for trial in old.trials} <= {trial.trial_id for trial in found.trials}
    assert len(found.trials) - len(old.trials) == 2 * len(CONFIRM["seeds"])


@pytest.mark.parametrize(
    "contexts", [{"task.train_length_max": [50]}, CONTEXTS | {"task.depth_max": [4, 8]}, {}]
)
def test_contexts_that_ran_stay(contexts):
    with pytest.raises(InputError, match="cannot be extended by this"):
        changes_allowed("small", crossed().content(), crossed(contexts=contexts).content(), DONE)
