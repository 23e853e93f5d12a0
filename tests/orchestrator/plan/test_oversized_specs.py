"""Specs that would hang a plan, exceed the memory, or silently search the wrong thing are refused."""

import re
import time

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.ablation_check import probe
from orchestrator.plan.ablation_check.differences import TRAINING_PASS
from orchestrator.plan.planner import plan
from orchestrator.plan.training_code.settings import parse_settings
from tests.orchestrator.plan.small_specs import (
    ARMS,
    CONFIRM,
    SEARCH,
    make_baseline,
    make_full_spec,
    make_spec,
)

HUGE = 10**9


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
    assert re.match(r"baseline: .*32\.0 TiB", error)
    (error,) = error_lines(make_search_spec(**{"model.width": {"choice": [16, HUGE]}}))
    assert re.search(r"model\.width = 1000000000: .*32\.0 TiB", error)


@pytest.mark.parametrize(
    ("invalid_spec", "message"),
    [
        (
            make_full_spec(search={**SEARCH, "trials_per_arm": 10**9}),
            r"search\.trials_per_arm: .*1,000,000 .*got 5,000,000,045",
        ),
        (make_spec(confirm={**CONFIRM, "best": 10**6}), "confirm: .*1,000,000 .*got 3,000,000"),
        (
            make_spec(arms=ARMS, grid={"model.dropout": [number / 30_000 for number in range(20_000)]}),
            "grid: .*10,000 .*got 100,000",
        ),
    ],
)
def test_plan_with_too_many_trials_is_refused_at_once(invalid_spec, message):
    started_at = time.process_time()
    (error,) = error_lines(invalid_spec)
    assert re.match(message, error)
    assert time.process_time() - started_at < 5


def test_goal_that_selects_the_worst_trial_is_refused():
    objective = {"metric": "valid/accuracy", "goal": "min"}
    (error,) = error_lines(make_full_spec(search={**SEARCH, "objectives": [objective]}))
    assert re.match(r"search\.objectives\[0\]\.goal: .*max, got min", error)


def test_fault_of_one_line_is_reported_once_for_all_arms():
    (error,) = error_lines(make_search_spec(**{"train.lr": {"float": [-1.0, 0.1]}}))
    assert re.match(r"search\.also\.train\.lr: .*train\.lr = -1\.0", error)


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
        ({"train": {"batch_size": HUGE}}, "baseline: .* TiB"),
        ({"train": {"steps": HUGE, "batch_size": HUGE}, "width": 10**4}, r"baseline: .*1e\+27 FLOPs"),
    ],
)
def test_trial_that_no_machine_could_run_is_refused_at_once(parts, message):
    started_at = time.process_time()
    error = error_lines(make_absurd_spec(**parts))
    assert any(re.match(message, line) for line in error), error
    assert time.process_time() - started_at < 5


def test_ablation_check_runs_few_layers_of_a_deep_model(monkeypatch):
    monkeypatch.setattr(probe, "LAYERS", 3)
    deep_model, shallow_model = (
        parse_settings(make_absurd_spec(max_layers=layers, halt=None).baseline.model_dump())
        for layers in (50, 3)
    )
    limited_probe = probe.Probe()
    deep_result = limited_probe.measure(deep_model, TRAINING_PASS)
    assert deep_result == limited_probe.measure(shallow_model, TRAINING_PASS)
    assert max(deep_result.quantities["layers run"]) == 3
    assert (
        limited_probe.structure(deep_model).flops_max > 10 * limited_probe.structure(shallow_model).flops_max
    )
