"""A plan states which effects its seeds can detect."""

from dataclasses import replace

import pytest

from orchestrator.plan.power import power
from orchestrator.plan.types import AnswerPlan, ConfirmPlan, SearchPlan
from orchestrator.spec.section import Objective
from orchestrator.statistics.power import seeds_needed, smallest_effect
from tests.orchestrator.plan.small_specs import make_full_spec, make_spec
from tests.support.specs.planned import plan

ANSWER = AnswerPlan(("near-iid/accuracy",), None, 0.05, 4)


def make_confirm(seeds: int) -> ConfirmPlan:
    return ConfirmPlan(1, tuple(range(101, 101 + seeds)), ("near-iid",))


def test_effect_without_a_spread_is_given_in_standard_deviations() -> None:
    sweep_power = power(make_confirm(8), ANSWER)
    assert sweep_power.smallest_effect == smallest_effect(8, 4) == pytest.approx(2.17, abs=0.01)
    numbers = (
        "8 seeds",
        "4 comparisons",
        "near-iid/accuracy",
        "2.2",
        "0.05",
        f"{seeds_needed(1.0, 4)} seeds",
    )
    assert all(number in sweep_power.sentence for number in numbers)


def test_stated_spread_gives_the_effect_in_units_of_the_outcome() -> None:
    sweep_power = power(make_confirm(8), replace(ANSWER, margin=0.01), stated_spread=0.012)
    assert (sweep_power.spread, sweep_power.spread_source) == (0.012, "stated")
    numbers = (" 0.026 ", " 0.012 ", f"{seeds_needed(0.01 / 0.012, 4)} seeds", " 0.01.")
    assert all(number in sweep_power.sentence for number in numbers)


def test_published_spread_of_the_outcome_is_used() -> None:
    row = {
        "arm": "gut",
        "split": "near-iid",
        "metric": "accuracy",
        "value": 0.9,
        "source": "a paper",
        "std": 0.02,
    }
    rows = [
        {**row, "split": "lra", "std": 0.5},
        {**row, "std": None},
        {**row, "alone": True, "std": 0.5},
        row,
        {**row, "arm": "baseline", "std": 0.01, "source": "Table 1"},
    ]
    assert (sweep_power := power(make_confirm(8), ANSWER, published=rows)).spread == 0.01
    assert sweep_power.spread_source == "published, Table 1"
    assert power(make_confirm(8), ANSWER, published=rows[:4]).spread == 0.02
    assert power(make_confirm(8), ANSWER, published=rows[:3]).spread is None
    assert power(make_confirm(8), ANSWER, published=rows[:4]).spread_source.endswith("gut, a paper")
    assert power(make_confirm(8), ANSWER, stated_spread=0.3, published=rows).spread == 0.3


def test_too_few_seeds_are_reported() -> None:
    sweep_power = power(make_confirm(2), ANSWER)
    assert (sweep_power.smallest_effect, " 3 seeds" in sweep_power.sentence) == (None, True)


def test_power_without_test_splits_promises_no_verdict() -> None:
    seeds, without_outcomes = replace(make_confirm(8), splits=()), replace(ANSWER, outcomes=())
    search = SearchPlan(3, {"name": "tpe"}, None, (Objective(metric="valid/accuracy", goal="max"),), 0)
    assert power(seeds, without_outcomes, search=search).smallest_effect is None
    assert power(seeds, without_outcomes).smallest_effect, "validation data may decide"


def test_plan_counts_the_comparisons_of_the_report() -> None:
    """Every arm with a reference counts in every primary outcome, including cells of a grid."""
    grid = {"model.max_layers": [4, 6, 8]}
    sweep_power = plan(
        make_spec(grid=grid, answer={"metric": "near-iid/accuracy", "also": ("near-iid/depth",)})
    )
    assert sum(bool(arm.reference) for arm in sweep_power.arms) == 2
    assert sweep_power.answer.family == sweep_power.power.comparisons == 4
    assert sweep_power.power.smallest_effect


def test_default_outcome_is_the_headline_metric_on_the_first_confirm_split() -> None:
    sweep_power = plan(make_full_spec())
    assert sweep_power.answer == AnswerPlan(("near-iid/accuracy",), None, 0.05, 4)
    assert plan(make_full_spec(confirm=None, posthoc={})).answer is None
