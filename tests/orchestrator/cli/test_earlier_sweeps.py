"""A sweep whose search starts with the best params of an earlier sweep."""

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
    """Return a working folder with the spec of a random walk."""
    monkeypatch.chdir(tmp_path)
    _, code, spec = FORMS["workload"]
    (tmp_path / "walk.py").write_text(code)
    (tmp_path / "own.yaml").write_text(spec)
    with forgotten(tmp_path):
        yield tmp_path


SCORE_METRICS = ["valid/score"]
AFTER_OVERRIDES = ("name=after", "search.first=[{from: own}, {drift: 0.25}]")


def test_missing_sweep_is_refused_with_the_spec_field(folder, haltsweep):
    result = haltsweep("plan", "own.yaml", *AFTER_OVERRIDES)
    assert result.code == 2
    assert "search.first[0]: " in " ".join(result.err.split())


def searched_drifts(arm, name="own"):
    """Return the drifts that the search of an arm tried; the largest drift scores best."""
    with open_stored_sweep(name, Path("runs")) as sweep:
        records = [record for record in sweep.records() if record.phase == "search" and record.arm == arm]
    return [trial.assignment["drift"] for trial in sorted(records, key=lambda trial: trial.number)]


def test_best_params_come_from_the_last_report_with_the_objective(tmp_path, haltsweep):
    plan = make_plan(2, seeds=())
    folder = launched(tmp_path, plan)
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        lease = ledger.claim(DEAD)
        for event in history(plan):
            if event.kind is EventKind.ENDED:
                without_objective = Measurement(99, 9.9, {"train/loss": 0.1})
                ledger.append([log.measured(event.at, event.trial_id, without_objective)], lease)
            ledger.append([event], lease)
        ledger.release(lease)
        trial_records = records(ledger.events(), plan)
    best = max(
        (record for record in trial_records if record.arm == "arm-1"),
        key=lambda record: record.judged_by(SCORE_METRICS),
    )
    assert read_best_params(tmp_path / "runs", plan.name)["arm-1"] == best.assignment
    assert f"{best.judged_by(SCORE_METRICS)[0]:.3f}" in haltsweep("status", plan.name).out


@pytest.mark.slow
def test_search_starts_with_the_best_params_of_a_finished_sweep(folder, haltsweep):
    assert haltsweep("launch", "own.yaml", "--driver", "inline").code == 0
    result = haltsweep("launch", "own.yaml", *AFTER_OVERRIDES, "--driver", "inline")
    assert result.code == 0, result
    plan = json.loads(Path("runs/after/plan.json").read_text())
    first_params = {arm["name"]: arm["first"] for arm in plan["arms"]}
    assert first_params == {
        arm: [{"drift": max(searched_drifts(arm))}, {"drift": 0.25}] for arm in first_params
    }
    assert searched_drifts("baseline", "after") == [row["drift"] for row in first_params["baseline"]]
    assert "found:" in Path("runs/after/spec.yaml").read_text()
    plan_before = Path("runs/after/plan.json").read_bytes()
    Path("runs/own").rename("runs/gone")
    Path("runs/after/plan.json").write_text("damaged")
    assert haltsweep("verify", "after", "--repair").code == 0
    assert Path("runs/after/plan.json").read_bytes() == plan_before


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [("search=null",), ("budget.wall_clock_hours=0.0003", "search.trials_per_arm=999")]
)
def test_unfinished_search_is_refused_as_a_source(folder, haltsweep, change):
    haltsweep("launch", "own.yaml", *change, "--driver", "inline")
    result = haltsweep("plan", "own.yaml", *AFTER_OVERRIDES)
    assert result.code == 2
    assert "search.first[0]: " in " ".join(result.err.split())


@pytest.mark.slow
def test_power_uses_the_spread_of_an_earlier_sweep(folder, haltsweep):
    overrides = ("search=null", "confirm={seeds: [1, 2, 3, 4], splits: []}")
    assert haltsweep("launch", "own.yaml", *overrides, "--driver", "inline").code == 0
    arguments = ("plan", "own.yaml", "name=after", *overrides, "answer={spread: {from: own}}")
    plan_result = haltsweep(*arguments)
    assert plan_result.code == 0, plan_result
    assert "(baseline of own)" in " ".join(plan_result.out.split())
    small_launch = haltsweep(
        "launch", "own.yaml", "name=few", overrides[0], "confirm.seeds=[1, 2]", "--driver", "inline"
    )
    assert small_launch.code == 0, small_launch
    result = haltsweep(*arguments[:-1], "answer={spread: {from: few}}")
    assert result.code == 2
