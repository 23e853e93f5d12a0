"""Contexts cross the arms like a grid, and each context has a separate baseline."""

import pytest

from orchestrator.errors import InputError, PlanError
from orchestrator.plan.display.render import plan_warnings
from orchestrator.plan.extension.extending import allowed_changes
from orchestrator.plan.extension.extension_rules import RequestedWork
from orchestrator.plan.serialise import from_json, to_json
from tests.orchestrator.plan.small_specs import make_one_arm_spec, make_spec
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults

CONTEXTS = {"task.train_length_max": [50, 100]}
GATE = {"model.gate": False}


def make_crossed_spec(**parts):
    return make_one_arm_spec(GATE, name="minus-gate", **{"contexts": CONTEXTS} | parts)


def test_every_arm_is_compared_with_the_baseline_of_its_context():
    sweep_plan = plan(make_crossed_spec())
    easy, hard = (f"[task.train_length_max={length}]" for length in (50, 100))
    assert {arm.name: arm.reference for arm in sweep_plan.arms} == {
        f"baseline{easy}": "",
        f"baseline{hard}": "",
        f"minus-gate{easy}": f"baseline{easy}",
        f"minus-gate{hard}": f"baseline{hard}",
    }
    assert [arm.settings["task"]["train_length_max"] for arm in sweep_plan.arms] == [50, 100, 50, 100]
    assert [arm.name_in_context for arm in sweep_plan.arms] == 2 * ["baseline"] + 2 * ["minus-gate"]
    assert [[change.path for change in arm.changes] for arm in sweep_plan.arms[1:3]] == [[], ["model.gate"]]
    assert [proof.evidence == () for proof in sweep_plan.proofs] == [True, True, False, False]
    assert (sweep_plan.answer.family, sweep_plan.power.comparisons) == (2, 2)
    assert from_json(to_json(sweep_plan)) == sweep_plan


def test_contexts_cross_several_fields_and_a_grid():
    contexts = CONTEXTS | {"task.depth_max": [4, 8]}
    assert len(plan(make_crossed_spec(contexts=contexts)).arms) == 2 * 4
    sweep_plan = plan(make_crossed_spec(grid={"model.heads": [2, 4]}))
    references = {arm.name: arm.reference for arm in sweep_plan.arms}
    for length in (50, 100):
        cells = [f"[task.train_length_max={length},model.heads={heads}]" for heads in (2, 4)]
        assert references[f"baseline{cells[0]}"] == ""
        assert references[f"baseline{cells[1]}"] == f"baseline{cells[0]}"
        for cell in cells:
            assert references[f"minus-gate{cell}"] == f"baseline{cell}"
    assert sweep_plan.answer.family == 2 * 3


def test_pooling_contexts_adds_one_comparison_for_each_arm():
    answer = {"metric": "near-iid/accuracy", "also": ["near-iid/loss"], "pool": "contexts"}
    sweep_plan = plan(make_crossed_spec(answer=answer, grid={"model.heads": [2, 4]}))
    assert sweep_plan.answer.pooled
    assert sweep_plan.answer.family == 2 * (2 * 3 + 3)
    assert sweep_plan.pools.keys() == {
        "baseline[model.heads=4]",
        "minus-gate[model.heads=2]",
        "minus-gate[model.heads=4]",
    }


def test_arm_without_an_effect_is_refused_in_its_context():
    """The difference between contexts is no effect of the arm."""
    arms = {"same": {"why": "nothing", "set": {"model.gate": True}}}
    with expect_faults("arm-has-no-effect", "arms.same.set.model.gate"):
        plan(make_spec(arms=arms, contexts=CONTEXTS))


@pytest.mark.parametrize(
    ("field", "values"), [("train.eval_batch_size", [64, 128]), ("train.clip", [1.0, 1.0e7, 1.0e8])]
)
def test_contexts_may_have_baselines_with_equal_behaviour(field, values):
    assert len(plan(make_crossed_spec(contexts={field: values})).arms) == 2 * len(values)
    with pytest.raises(PlanError):
        plan(make_crossed_spec(contexts={}, grid={field: values}))


def test_two_contexts_with_equal_settings_are_refused():
    contexts = {"model.halt": [{"unit": "token"}, {"unit": "token", "threshold": 0.999}]}
    with expect_faults("arm-has-no-effect", "contexts.model.halt"):
        plan(make_crossed_spec(contexts=contexts))


def test_tasks_may_be_contexts_but_no_grid():
    """Cells of a grid are compared with each other, so they need equal tests."""
    tasks, confirm = {"task.name": ["listops", "listops_depth"]}, {"seeds": [1, 2, 3]}
    with expect_faults("different-test-data", "grid.task.name"):
        plan(make_spec(grid=tasks, confirm=confirm))
    sweep_plan = plan(make_spec(contexts=tasks, confirm=confirm))
    assert not any("grid" in line for line in plan_warnings(sweep_plan))


DONE = RequestedWork(searched=True, confirmed=True, decides=False)


def test_contexts_with_trials_cannot_change():
    context_before, context_after = (
        make_crossed_spec(contexts={"task.train_length_max": lengths}).content()
        for lengths in ([50, 100], [50])
    )
    with pytest.raises(InputError, match=r"small.*\n  contexts"):
        allowed_changes("small", context_before, context_after, DONE)
