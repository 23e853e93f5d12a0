"""A sweep whose search starts with the best params of an earlier sweep."""

import json
import statistics
from pathlib import Path

import pytest

from orchestrator import read
from orchestrator.cli.earlier_sweeps import read_spread
from orchestrator.cli.stored_sweep import open_stored_sweep
from orchestrator.errors import InputError
from tests.support.specs.plans import make_plan
from tests.support.sweeps.finished import finished
from tests.support.training_code.own_code import FORMS, forgotten

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


AFTER_OVERRIDES = ("name=after", "search.first=[{from: own}, {drift: 0.25}]")


def searched_drifts(arm, name="own"):
    """Return the drifts that the search of an arm tried; the largest drift scores best."""
    with open_stored_sweep(name, Path("runs")) as sweep:
        records = [record for record in sweep.records() if record.phase == "search" and record.arm == arm]
    return [trial.assignment["drift"] for trial in sorted(records, key=lambda trial: trial.number)]


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


@pytest.mark.parametrize("is_launched", [False, True])
def test_missing_or_unfinished_search_is_refused_as_a_source(folder, haltsweep, is_launched):
    if is_launched:
        budget = ("budget.wall_clock_hours=0.0003", "search.trials_per_arm=999")
        haltsweep("launch", "own.yaml", *budget, "--driver", "inline")
    result = haltsweep("plan", "own.yaml", *AFTER_OVERRIDES)
    assert result.code == 2
    assert "search.first[0]: " in " ".join(result.err.split())


def test_spread_is_the_standard_deviation_over_seeds_of_the_baseline(tmp_path):
    for seeds, name in (((1, 2, 3, 4), "enough"), ((1, 2), "few")):
        finished(tmp_path / name, make_plan(1, seeds=seeds))
    rows = read.trials("synthetic", runs=tmp_path / "enough" / "runs").to_pylist()
    scores = [row["metric.test/score"] for row in rows if row["phase"] == "confirm"]
    spread = read_spread(tmp_path / "enough" / "runs", "synthetic", "test/score")
    assert spread == pytest.approx(statistics.stdev(scores))
    with pytest.raises(InputError):
        read_spread(tmp_path / "few" / "runs", "synthetic", "test/score")
