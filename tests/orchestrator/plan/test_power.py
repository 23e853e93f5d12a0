"""What a plan says that its seeds can show."""

from dataclasses import replace

import pytest

from orchestrator.plan.power import power
from orchestrator.plan.types import AnswerPlan, ConfirmPlan, SearchPlan
from orchestrator.spec.section import Objective
from orchestrator.statistics.power import seeds_needed, smallest_effect
from tests.orchestrator.plan.small import full, spec
from tests.support.specs.planned import plan

ANSWER = AnswerPlan(("near-iid/accuracy",), None, 0.05, 4)


def confirm(seeds: int) -> ConfirmPlan:
    return ConfirmPlan(1, tuple(range(101, 101 + seeds)), ("near-iid",))


def test_without_a_spread_the_effect_is_in_its_units() -> None:
    found = power(confirm(8), ANSWER)
    assert found.smallest_effect == smallest_effect(8, 4) == pytest.approx(2.17, abs=0.01)
    assert found.sentence == (
        "With 8 seeds and 4 comparisons, a difference in near-iid/accuracy of 2.2 standard deviations over "
        "seeds is found 8 times in 10 at level 0.05 over all of them; "
        f"{seeds_needed(1.0, 4)} seeds would be needed for one of 1."
    )


def test_a_stated_spread_gives_it_in_units_of_the_outcome_and_the_seeds_that_the_margin_needs() -> None:
    found = power(confirm(8), replace(ANSWER, margin=0.01), stated=0.012)
    assert (found.spread, found.spread_source) == (0.012, "stated")
    assert found.sentence == (
        "With 8 seeds and 4 comparisons, a difference in near-iid/accuracy of 0.026 is found 8 times in 10 "
        "at level 0.05 over all of them, with a standard deviation over seeds of 0.012 (stated); "
        f"{seeds_needed(0.01 / 0.012, 4)} seeds would be needed for the margin of 0.01."
    )


def test_a_published_spread_is_used_where_it_is_that_of_the_outcome() -> None:
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
    assert (found := power(confirm(8), ANSWER, published=rows)).spread == 0.01
    assert found.spread_source == "published, Table 1"
    assert power(confirm(8), ANSWER, published=rows[:4]).spread == 0.02
    assert power(confirm(8), ANSWER, published=rows[:3]).spread is None
    assert power(confirm(8), ANSWER, published=rows[:4]).spread_source == "published of gut, a paper"
    assert power(confirm(8), ANSWER, stated=0.3, published=rows).spread == 0.3


def test_of_a_grid_the_published_spread_is_that_of_the_baseline_s_own_cell() -> None:
    row = {"arm": "baseline", "split": "near-iid", "metric": "accuracy", "value": 0.9, "source": "Table 2"}
    rows = [{**row, "cell": {"model.width": width}, "std": width / 1000} for width in (64, 32)]
    settings = {"model": {"width": 32}}
    own = power(confirm(8), ANSWER, published=rows, baseline=settings)
    assert (own.spread, own.spread_source) == (0.032, "published, Table 2")
    other = power(confirm(8), ANSWER, published=rows[:1], baseline=settings)
    assert (other.spread, other.spread_source) == (0.064, "published of baseline[model.width=64], Table 2")


def test_too_few_seeds_and_no_arms_are_told() -> None:
    assert "there can be no verdict: 3 seeds are the fewest" in power(confirm(2), ANSWER).sentence
    shown = "With no arm beside the baseline, {} seed{} can show {}."
    alone = replace(ANSWER, family=0)
    assert power(confirm(2), alone).sentence == shown.format(2, "s", "its spread and no effect")
    assert power(confirm(1), alone).sentence == shown.format(1, "", "neither its spread nor an effect")


def test_where_nothing_is_claimed_no_difference_is_said_to_be_found() -> None:
    seeds, nothing = replace(confirm(8), splits=()), replace(ANSWER, outcomes=())
    search = SearchPlan(3, {"name": "tpe"}, None, (Objective(metric="valid/accuracy", goal="max"),), 0)
    shown = power(seeds, nothing, search=search).sentence
    assert shown.endswith("there can be no verdict: they are read on validation data alone, which chose.")
    assert "8 times in 10" in power(seeds, nothing).sentence, "without a search valid decides"


def test_more_than_a_thousand_seeds_are_not_counted() -> None:
    assert "more than 1,000 seeds would be needed for the margin" in (
        power(confirm(8), replace(ANSWER, margin=1e-6), stated=1.0).sentence
    )


def test_the_plan_counts_what_the_report_compares() -> None:
    """Every arm with a reference, in every primary outcome: cells of a grid too, arms or none."""
    grid = {"model.max_layers": [4, 6, 8]}
    found = plan(spec(grid=grid, answer={"metric": "near-iid/accuracy", "also": ("near-iid/depth",)}))
    assert found.answer is not None
    assert found.power is not None
    assert sum(bool(arm.reference) for arm in found.arms) == 2
    assert found.answer.family == found.power.comparisons == 4
    assert "no effect" not in found.power.sentence


def test_the_default_is_the_task_s_headline_on_the_first_confirm_split() -> None:
    found = plan(full())
    assert found.answer == AnswerPlan(("near-iid/accuracy",), None, 0.05, 4)
    assert plan(full(confirm=None, posthoc={})).answer is None
