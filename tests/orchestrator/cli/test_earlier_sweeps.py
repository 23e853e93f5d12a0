"""A sweep that begins with what another one's search found best."""

import json
from pathlib import Path

import pytest

from orchestrator.cli.earlier_sweeps import read_best_params
from orchestrator.cli.stored_sweep import open_stored_sweep
from orchestrator.ledger import events as log
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.fold import records
from orchestrator.ledger.store import Ledger
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD, history
from tests.support.sweeps.launched import launched
from tests.support.training_code.own_code import FORMS, forgotten
from trainables.protocol import Measurement

pytestmark = pytest.mark.usefixtures("untracked")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the spec of a random walk."""
    monkeypatch.chdir(tmp_path)
    _, code, spec = FORMS["workload"]
    (tmp_path / "walk.py").write_text(code)
    (tmp_path / "own.yaml").write_text(spec)
    with forgotten(tmp_path):
        yield tmp_path


SCORE = ["valid/score"]
AFTER = ("name=after", "search.first=[{from: own}, {drift: 0.25}]")


def test_a_missing_sweep_is_refused_with_the_line_of_the_spec(folder, haltsweep):
    found = haltsweep("plan", "own.yaml", *AFTER)
    assert found.code == 2
    assert "search.first[0]: no sweep named 'own' in runs" in " ".join(found.err.split())


def drifts(arm, name="own"):
    """What the search of an arm tried: of a walk the largest drift ends highest."""
    with open_stored_sweep(name, Path("runs")) as sweep:
        found = [each for each in sweep.records() if each.phase == "search" and each.arm == arm]
    return [each.assignment["drift"] for each in sorted(found, key=lambda each: each.number)]


def test_a_search_is_judged_everywhere_by_its_last_report_with_the_objective(tmp_path, haltsweep):
    plan = make_plan(2, seeds=())
    folder = launched(tmp_path, plan)
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        lease = ledger.claim(DEAD)
        for event in history(plan):
            if event.kind is EventKind.ENDED:
                without = Measurement(99, 9.9, {"train/loss": 0.1})
                ledger.append([log.measured(event.at, event.trial_id, without)], lease)
            ledger.append([event], lease)
        ledger.release(lease)
        ended = records(ledger.events(), plan)
    best = max((each for each in ended if each.arm == "arm-1"), key=lambda each: each.judged_by(SCORE))
    assert read_best_params(tmp_path / "runs", plan.name)["arm-1"] == best.assignment
    assert f"{best.judged_by(SCORE)[0]:.3f}" in haltsweep("status", plan.name).out


@pytest.mark.slow
def test_a_search_starts_with_the_best_params_of_a_finished_sweep(folder, haltsweep):
    assert haltsweep("launch", "own.yaml", "--driver", "inline").code == 0
    found = haltsweep("launch", "own.yaml", *AFTER, "--driver", "inline")
    assert found.code == 0, found
    plan = json.loads(Path("runs/after/plan.json").read_text())
    firsts = {arm["name"]: arm["first"] for arm in plan["arms"]}
    assert firsts == {arm: [{"drift": max(drifts(arm))}, {"drift": 0.25}] for arm in firsts}
    assert drifts("baseline", "after") == [each["drift"] for each in firsts["baseline"]]
    assert "found:" in Path("runs/after/spec.yaml").read_text()
    plan_before = Path("runs/after/plan.json").read_bytes()
    Path("runs/own").rename("runs/gone")
    Path("runs/after/plan.json").write_text("damaged")
    assert haltsweep("verify", "after", "--repair").code == 0
    assert Path("runs/after/plan.json").read_bytes() == plan_before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("search=null",), "must name a sweep that searched, got own, which has no search"),
        (
            ("budget.wall_clock_hours=0.0003", "search.trials_per_arm=999"),
            "must name a sweep whose search has ended, got own, where ",
        ),
    ],
)
def test_a_sweep_whose_search_has_not_ended_is_refused(folder, haltsweep, change, expected):
    haltsweep("launch", "own.yaml", *change, "--driver", "inline")
    found = haltsweep("plan", "own.yaml", *AFTER)
    assert found.code == 2
    assert expected in " ".join(found.err.split())


@pytest.mark.slow
def test_the_power_of_a_plan_uses_the_spread_of_an_earlier_sweep(folder, haltsweep):
    own = ("search=null", "confirm={seeds: [1, 2, 3, 4], splits: []}")
    assert haltsweep("launch", "own.yaml", *own, "--driver", "inline").code == 0
    again = ("plan", "own.yaml", "name=after", *own, "answer={spread: {from: own}}")
    found = haltsweep(*again)
    assert found.code == 0, found
    assert "(baseline of own)" in " ".join(found.out.split())
    few = haltsweep("launch", "own.yaml", "name=few", own[0], "confirm.seeds=[1, 2]", "--driver", "inline")
    assert few.code == 0, few
    shown = haltsweep(*again[:-1], "answer={spread: {from: few}}")
    assert shown.code == 2
    assert "must name a sweep with at least 3 confirmed seeds of " in " ".join(shown.err.split())
