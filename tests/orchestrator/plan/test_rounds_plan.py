"""Rounds of seeds in a plan: seeds by number, what people are told, what has nothing to decide it."""

import re

import pytest
from rich.console import Console

from orchestrator.plan.display.render import render
from orchestrator.plan.power import rounds_sentence
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.statistics.sequential import expected_seeds
from tests.orchestrator.plan.small import ARMS, spec
from tests.orchestrator.statistics.looks import power_and_seeds
from tests.support.specs.planned import plan

TWO = {name: ARMS[name] for name in ("minus-gate", "minus-transition")}
STOP = {"seeds": 8, "stop": "decided", "splits": ["near-iid"]}


def test_seeds_by_number_are_the_same_for_ever_and_the_first_of_more():
    eight, four = (spec(confirm={"seeds": number}).confirm.seeds for number in (8, 4))
    assert eight[:4] == four
    assert len(set(eight)) == 8
    assert spec(confirm={"seeds": list(eight)}).digest == spec(confirm={"seeds": 8}).digest


def test_a_plan_with_looks_says_so_and_has_the_trials_of_one_without():
    made = plan(spec(arms=TWO, confirm=STOP))
    assert made.confirm.stop == "decided"
    assert made.trials == plan(spec(arms=TWO, confirm={**STOP, "stop": None})).trials
    assert from_json(to_json(made)) == made
    console = Console(width=100, record=True)
    console.print(*render(made))
    said = " ".join(console.export_text().split())
    assert "Seeds run in rounds, 3 and then one at a time, and a round waits for its slowest trial." in said
    found = re.search(r"of 8 seeds: (\S+) by 2, (\S+) by 5, (\S+) by 10, (\S+) by 20", said)
    seeds = [float(each) for each in found.groups()]
    assert seeds == sorted(seeds, reverse=True)
    assert 3 <= seeds[-1] < 4
    assert seeds[0] > 7.5


def test_a_plan_without_looks_says_nothing_of_rounds():
    assert rounds_sentence(plan(spec(arms=TWO))) == ""


@pytest.mark.slow
@pytest.mark.parametrize("effect", [2.0, 5.0, 10.0, 20.0])
def test_the_seeds_that_are_expected_are_those_of_simulated_studies(effect):
    assert expected_seeds(effect, 8, 4, 0.05) / 8 == pytest.approx(
        power_and_seeds(effect, hopeless=0.0)[-1], abs=0.03
    )
