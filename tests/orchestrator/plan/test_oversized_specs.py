"""Specs that would hang a plan, exceed the memory, or silently search the wrong thing are refused."""

import time

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.ablation_check import probe
from orchestrator.plan.ablation_check.differences import LEARNS
from orchestrator.plan.planner import plan
from orchestrator.plan.training_code.settings import checked
from tests.orchestrator.plan.small_specs import (
    ARMS,
    CONFIRM,
    SEARCH,
    make_baseline,
    make_full_spec,
    make_one_arm_spec,
    make_spec,
)

HUGE = 10**9
GOALS = {"metric": "valid/accuracy", "goal": "min"}, {"metric": "valid/loss", "goal": "max"}


def error_lines(invalid_spec):
    with pytest.raises(PlanError) as caught:
        plan(invalid_spec)
    return str(caught.value).splitlines()


def make_search_spec(**ranges):
    return make_spec(
        arms=ARMS, search={**SEARCH, "spaces": [], "also": {"train.lr": {"float": [0.001, 0.1]}, **ranges}}
    )


def test_model_with_too_many_bytes_is_refused():
    (error,) = error_lines(make_spec(baseline=make_baseline(width=HUGE)))
    assert error.startswith("baseline: baseline cannot be trained: a training step must fit into 32.0 TiB")
    error = error_lines(make_full_spec(baseline=make_baseline(width=HUGE)))
    assert all("cannot be trained: a training step" in line for line in error), (
        "the error must not be repeated for each dimension"
    )
    (error,) = error_lines(make_one_arm_spec({"model.width": HUGE}))
    assert error.startswith(
        "arms.arm: arm cannot be trained: a training step must fit into 32.0 TiB of memory, got"
    )
    (error,) = error_lines(make_search_spec(**{"model.width": {"choice": [16, HUGE]}}))
    assert "cannot be trained with model.width = 1000000000: a training step must fit into 32.0 TiB" in error
    (error,) = error_lines(make_one_arm_spec({"model.width": 2 * HUGE}))
    assert error == "arms.arm.set.model.width: must be at most 1,000,000,000, got 2,000,000,000"


@pytest.mark.parametrize(
    ("invalid_spec", "message"),
    [
        (
            make_full_spec(search={**SEARCH, "trials_per_arm": 10**9}),
            "search.trials_per_arm: must ask for at most 1,000,000 trials over all arms, got 5,000,000,045:",
        ),
        (
            make_spec(confirm={**CONFIRM, "best": 10**6}),
            "confirm: must ask for at most 1,000,000 trials over all arms, got 3,000,000: ask for fewer",
        ),
        (
            make_spec(arms=ARMS, grid={"model.dropout": [number / 30_000 for number in range(20_000)]}),
            "grid: must make at most 10,000 arms of the baseline and all arms, got 100,000: leave some",
        ),
    ],
)
def test_plan_with_too_many_trials_is_refused_at_once(invalid_spec, message):
    started_at = time.process_time()
    (error,) = error_lines(invalid_spec)
    assert error.startswith(message)
    assert time.process_time() - started_at < 5


@pytest.mark.parametrize("objective", GOALS)
def test_goal_that_selects_the_worst_trial_is_refused(objective):
    (error,) = error_lines(make_full_spec(search={**SEARCH, "objectives": [objective]}))
    better, worse = ("max", "min") if objective["goal"] == "min" else ("min", "max")
    assert error.startswith(f"search.objectives[0].goal: must be {better}, got {worse}: the best valid/")


def test_condition_on_an_unknown_field_is_refused():
    (error,) = error_lines(
        make_search_spec(**{"model.heads": {"int": [1, 2], "when": {"model.gaet": [True]}}})
    )
    assert error.startswith(
        "search.also.model.heads.when: depends on model.gaet, a field of no arm. Did you mean 'model.gate'? "
        "Known: model.width, "
    )
    assert "train." not in error
    halting = {"train.ponder_weight": {"float": [0.1, 1.0], "when": {"model.halt.unit": ["token"]}}}
    search = {**SEARCH, "spaces": [], "also": {**halting, "train.lr": {"float": [1e-3, 1e-2]}}}
    arms = {"token": {"why": "each for itself", "set": {"model.halt": {"unit": "token"}}}}
    sweep_plan = plan(make_spec(baseline=make_baseline(halt=None), arms=arms, search=search))
    assert sweep_plan.baseline.dropped == ("train.ponder_weight",)


def test_fault_of_one_line_is_reported_once_for_all_arms():
    (error,) = error_lines(make_search_spec(**{"train.lr": {"float": [-1.0, 0.1]}}))
    assert error.startswith("search.also.train.lr: baseline cannot be trained with train.lr = -1.0: must be")
    (error,) = error_lines(make_search_spec(**{"train.stesp": {"int": [1, 2]}}))
    assert error.startswith("search.also.train.stesp: baseline has no field train.stesp. Did you mean")
    (error,) = error_lines(make_spec(arms=ARMS, posthoc={"model.width": [32]}))
    assert error.startswith("posthoc.model.width[0]: baseline has other weights with model.width = 32")
    (error,) = error_lines(make_full_spec(search={**SEARCH, "stopper": {"name": "asha", "grace_steps": 100}}))
    assert error == (
        "search.stopper: can never stop a trial of baseline: it waits for step 100 and train.steps is 100"
    )


def test_published_values_must_be_valid_metrics():
    def make_published_spec(metric, value):
        row = {"arm": "baseline", "metric": metric, "values": {"near-iid": value}, "source": "a table"}
        return make_spec(published=[row])

    (error,) = error_lines(make_published_spec("accurcy", 0.5))
    assert error.startswith(
        "published[0].metric: no quantity named 'accurcy'. Did you mean 'accuracy'? Known: "
    )
    (error,) = error_lines(make_published_spec("accuracy", 51.5))
    assert error.startswith(
        "published[0].values.near-iid: must be a share from 0 to 1 as our accuracy is, got 51.5"
    )
    assert plan(make_published_spec("accuracy", 0.515)).published
    (error,) = error_lines(make_published_spec("depth", -1.0))
    assert error.startswith("published[0].values.near-iid: must be at least 0 as our depth is, got -1")
    rows = [
        {**row, "source": source}
        for row in make_published_spec("accuracy", 0.5).model_dump()["published"]
        for source in "ab"
    ]
    assert error_lines(make_spec(published=rows)) == [
        "published[1].values.near-iid: accuracy of baseline must be given once, also in published[0]"
    ]


def make_absurd_spec(task=None, train=None, **model):
    full_baseline = make_baseline(**model)
    parts = {"task": task, "train": train}
    return make_spec(
        baseline={
            **full_baseline,
            **{name: {**full_baseline[name], **part} for name, part in parts.items() if part},
        }
    )


@pytest.mark.parametrize(
    ("parts", "message"),
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
def test_trial_that_no_machine_could_run_is_refused_at_once(parts, message):
    started_at = time.process_time()
    error = error_lines(make_absurd_spec(**parts))
    assert any(line.startswith(message) for line in error), error
    assert time.process_time() - started_at < 5


def test_range_that_needs_too_much_memory_is_refused():
    (error,) = error_lines(make_search_spec(**{"train.batch_size": {"choice": [16, HUGE]}}))
    assert (
        "cannot be trained with train.batch_size = 1000000000: a training step must fit into 32.0 TiB"
        in error
    )


def test_ablation_check_runs_few_layers_of_a_deep_model(monkeypatch):
    monkeypatch.setattr(probe, "LAYERS", 3)
    deep, shallow = (
        checked(make_absurd_spec(max_layers=layers, halt=None).baseline.model_dump()) for layers in (50, 3)
    )
    limited_probe = probe.Probe()
    deep_result = limited_probe.measure(deep, LEARNS)
    assert deep_result == limited_probe.measure(shallow, LEARNS)
    assert max(deep_result.quantities["layers run"]) == 3
    assert limited_probe.structure(deep).flops_max > 10 * limited_probe.structure(shallow).flops_max
