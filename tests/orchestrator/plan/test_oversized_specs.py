"""What would hang a plan, fill the machine, or search the wrong thing in silence is refused in words."""

import time

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.ablation_check import probe
from orchestrator.plan.ablation_check.differences import LEARNS
from orchestrator.plan.planner import plan
from orchestrator.plan.training_code.settings import checked
from tests.orchestrator.plan.small import ARMS, CONFIRM, SEARCH, baseline, full, one_arm, spec

HUGE = 10**9
GOALS = {"metric": "valid/accuracy", "goal": "min"}, {"metric": "valid/loss", "goal": "max"}


def refusals(asked):
    with pytest.raises(PlanError) as caught:
        plan(asked)
    return str(caught.value).splitlines()


def also(**ranges):
    return spec(
        arms=ARMS, search={**SEARCH, "spaces": [], "also": {"train.lr": {"float": [0.001, 0.1]}, **ranges}}
    )


def test_a_model_of_more_bytes_than_can_be_counted_is_refused():
    (shown,) = refusals(spec(baseline=baseline(width=HUGE)))
    assert shown.startswith("baseline: baseline cannot be trained: a training step must fit into 32.0 TiB")
    shown = refusals(full(baseline=baseline(width=HUGE)))
    assert all("cannot be trained: a training step" in each for each in shown), "not again for each dimension"
    (shown,) = refusals(one_arm({"model.width": HUGE}))
    assert shown.startswith(
        "arms.arm: arm cannot be trained: a training step must fit into 32.0 TiB of memory, got"
    )
    (shown,) = refusals(also(**{"model.width": {"choice": [16, HUGE]}}))
    assert "cannot be trained with model.width = 1000000000: a training step must fit into 32.0 TiB" in shown
    (shown,) = refusals(one_arm({"model.width": 2 * HUGE}))
    assert shown == "arms.arm.set.model.width: must be at most 1,000,000,000, got 2,000,000,000"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            full(search={**SEARCH, "trials_per_arm": 10**9}),
            "search.trials_per_arm: must ask for at most 1,000,000 trials over all arms, got 5,000,000,045:",
        ),
        (
            spec(confirm={**CONFIRM, "best": 10**6}),
            "confirm: must ask for at most 1,000,000 trials over all arms, got 3,000,000: ask for fewer",
        ),
        (
            spec(arms=ARMS, grid={"model.dropout": [number / 30_000 for number in range(20_000)]}),
            "grid: must make at most 10,000 arms of the baseline and all arms, got 100,000: leave some",
        ),
    ],
)
def test_what_cannot_be_planned_in_a_lifetime_is_refused_at_once(asked, message):
    began = time.process_time()
    (shown,) = refusals(asked)
    assert shown.startswith(message)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("objective", GOALS)
def test_a_goal_that_picks_the_worst_trial_is_refused(objective):
    (shown,) = refusals(full(search={**SEARCH, "objectives": [objective]}))
    better, worse = ("max", "min") if objective["goal"] == "min" else ("min", "max")
    assert shown.startswith(f"search.objectives[0].goal: must be {better}, got {worse}: the best valid/")


def test_a_range_that_depends_on_what_is_nowhere_is_refused():
    (shown,) = refusals(also(**{"model.heads": {"int": [1, 2], "when": {"model.gaet": [True]}}}))
    assert shown.startswith(
        "search.also.model.heads.when: depends on model.gaet, a field of no arm. Did you mean 'model.gate'? "
        "Known: model.width, "
    )
    assert "train." not in shown
    halting = {"train.ponder_weight": {"float": [0.1, 1.0], "when": {"model.halt.unit": ["token"]}}}
    search = {**SEARCH, "spaces": [], "also": {**halting, "train.lr": {"float": [1e-3, 1e-2]}}}
    arms = {"token": {"why": "each for itself", "set": {"model.halt": {"unit": "token"}}}}
    found = plan(spec(baseline=baseline(halt=None), arms=arms, search=search))
    assert found.baseline.dropped == ("train.ponder_weight",)


def test_what_one_line_does_in_every_arm_is_told_once():
    (shown,) = refusals(also(**{"train.lr": {"float": [-1.0, 0.1]}}))
    assert shown.startswith("search.also.train.lr: baseline cannot be trained with train.lr = -1.0: must be")
    (shown,) = refusals(also(**{"train.stesp": {"int": [1, 2]}}))
    assert shown.startswith("search.also.train.stesp: baseline has no field train.stesp. Did you mean")
    (shown,) = refusals(spec(arms=ARMS, posthoc={"model.width": [32]}))
    assert shown.startswith("posthoc.model.width[0]: baseline has other weights with model.width = 32")
    (shown,) = refusals(full(search={**SEARCH, "stopper": {"name": "asha", "grace_steps": 100}}))
    assert shown == (
        "search.stopper: can never stop a trial of baseline: it waits for step 100 and train.steps is 100"
    )


def test_published_figures_are_those_that_we_report():
    def published(metric, value):
        row = {"arm": "baseline", "metric": metric, "values": {"near-iid": value}, "source": "a table"}
        return spec(published=[row])

    (shown,) = refusals(published("accurcy", 0.5))
    assert shown.startswith(
        "published[0].metric: no quantity named 'accurcy'. Did you mean 'accuracy'? Known: "
    )
    (shown,) = refusals(published("accuracy", 51.5))
    assert shown.startswith(
        "published[0].values.near-iid: must be a share from 0 to 1 as our accuracy is, got 51.5"
    )
    assert plan(published("accuracy", 0.515)).published
    (shown,) = refusals(published("depth", -1.0))
    assert shown.startswith("published[0].values.near-iid: must be at least 0 as our depth is, got -1")
    rows = [
        {**row, "source": source}
        for row in published("accuracy", 0.5).model_dump()["published"]
        for source in "ab"
    ]
    assert refusals(spec(published=rows)) == [
        "published[1].values.near-iid: accuracy of baseline must be given once, also in published[0]"
    ]


def absurd(task=None, train=None, **model):
    whole = baseline(**model)
    parts = {"task": task, "train": train}
    return spec(baseline={**whole, **{name: {**whole[name], **part} for name, part in parts.items() if part}})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"train": {"batch_size": 10**15}},
            "baseline.train.batch_size: must be at most 1,000,000,000, got 1,0",
        ),
        (
            {"train": {"batch_size": HUGE}},
            "baseline: baseline cannot be trained: a training step must fit into",
        ),
        (
            {"train": {"steps": 10**18}},
            "baseline.train.steps: must be at most 1,000,000,000, got 1,000,000,000,",
        ),
        (
            {"train": {"steps": HUGE, "batch_size": HUGE}, "width": 10**4},
            "baseline: baseline cannot be trained: a trial must take at most 1e+27 FLOPs, got at least ",
        ),
        (
            {"max_layers": 10**6},
            "baseline.model.max_layers: must be less than or equal to 10000, got 1000000",
        ),
    ],
)
def test_a_trial_that_no_machine_could_run_is_refused_at_once(asked, message):
    began = time.process_time()
    shown = refusals(absurd(**asked))
    assert any(each.startswith(message) for each in shown), shown
    assert time.process_time() - began < 5


def test_no_end_of_a_range_needs_more_memory_than_there_is():
    (shown,) = refusals(also(**{"train.batch_size": {"choice": [16, HUGE]}}))
    assert (
        "cannot be trained with train.batch_size = 1000000000: a training step must fit into 32.0 TiB"
        in shown
    )


def test_the_proof_runs_few_layers_however_many_are_asked_for(monkeypatch):
    monkeypatch.setattr(probe, "LAYERS", 3)
    deep, shallow = (
        checked(absurd(max_layers=layers, halt=None).baseline.model_dump()) for layers in (50, 3)
    )
    tried = probe.Probe()
    measured = tried.measure(deep, LEARNS)
    assert measured == tried.measure(shallow, LEARNS)
    assert max(measured.quantities["layers run"]) == 3
    assert tried.structure(deep).flops_max > 10 * tried.structure(shallow).flops_max
