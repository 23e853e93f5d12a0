"""Confirm seeds that run in rounds: their values, their expected number, and the trials of the plan."""

import re

import pytest
from rich.console import Console

from orchestrator.plan.display.render import render
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.statistics.sequential import expected_seeds
from tests.orchestrator.plan.small_specs import ARMS, make_spec
from tests.orchestrator.statistics.looks import power_and_seeds
from tests.support.specs.planned import plan

TWO = {name: ARMS[name] for name in ("minus-gate", "minus-transition")}
STOP = {"seeds": 8, "stop": "decided", "splits": ["near-iid"]}


def test_numbered_seeds_are_stable_prefixes():
    eight, four = (make_spec(confirm={"seeds": number}).confirm.seeds for number in (8, 4))
    assert eight[:4] == four
    assert len(set(eight)) == 8
    assert make_spec(confirm={"seeds": list(eight)}).digest == make_spec(confirm={"seeds": 8}).digest


def test_plan_with_rounds_prints_the_expected_seeds_and_keeps_the_trials():
    sweep_plan = plan(make_spec(arms=TWO, confirm=STOP))
    assert sweep_plan.confirm.stop == "decided"
    assert sweep_plan.trials == plan(make_spec(arms=TWO, confirm={**STOP, "stop": None})).trials
    assert from_json(to_json(sweep_plan)) == sweep_plan
    console = Console(width=100, record=True)
    console.print(*render(sweep_plan))
    output = " ".join(console.export_text().split())
    assert "rounds, 3 " in output
    match = re.search(r"over seeds: (\S+) for 2, (\S+) for 5, (\S+) for 10, (\S+) for 20", output)
    seeds = [float(group) for group in match.groups()]
    assert seeds == sorted(seeds, reverse=True)
    assert 3 <= seeds[-1] < 4
    assert seeds[0] > 7.5


@pytest.mark.slow
@pytest.mark.parametrize("effect", [2.0, 5.0, 10.0, 20.0])
def test_expected_seeds_match_simulated_sweeps(effect):
    assert expected_seeds(effect, 8, 4, 0.05) / 8 == pytest.approx(
        power_and_seeds(effect, hopeless=0.0)[-1], abs=0.03
    )
