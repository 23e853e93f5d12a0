"""The four functions for notebooks, on ledgers written by hand."""

import json
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from orchestrator import read
from orchestrator.errors import InputError
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.report.figures.panels import images
from orchestrator.tracking.flat_tables import TRIALS
from tests.support.processes.commands import PATIENCE_S, tree
from tests.support.specs.plans import make_plan
from tests.support.sweeps.finished import finished
from tests.support.sweeps.histories import OUTCOME_KINDS, measurement, trial_of
from tests.support.sweeps.launched import launched
from trainables.metrics import Metric

PLAN = make_plan(2, posthoc=({"model.shift": 0.5},))
SCORED = replace(PLAN, metrics=(Metric("score", better="max", shown=("headline",)),))


@pytest.fixture
def runs(tmp_path):
    return finished(tmp_path, PLAN, seed=1).root.parent


def files(folder):
    """What is in the folder, but for the memory that SQLite's readers share."""
    return {name: digest for name, digest in tree(folder.root).items() if not name.endswith("-shm")}


def test_trials_are_one_row_each_with_a_column_a_value(runs):
    found = read.trials("synthetic", runs=runs)
    assert found.schema.names[: len(TRIALS)] == TRIALS.names
    assert found.num_rows == len(PLAN.trials)
    rows = found.to_pylist()
    assert [row["trial_id"] for row in rows] == [each.trial_id for each in PLAN.trials]
    assert {row["outcome"] for row in rows} == {kind.value for kind in OUTCOME_KINDS}
    for number, row in enumerate(rows):
        trial = trial_of(PLAN, number)
        assert row["assignment.model.x"] == trial.assignment["model.x"]
        assert row["overrides.model.shift"] == trial.planned.overrides.get("model.shift")
        assert json.loads(row["settings"]) == trial.settings
        assert row["started_at"] is None or row["started_at"].tzname() == "UTC"
        assert row["commit"] == "c0ffee"
        skipped = row["outcome"] == "skipped"
        assert (row["metric.train/loss"], row["step"]) == ((None, None) if skipped else (1 / 31, 30))


def test_measurements_are_all_that_were_reported(runs):
    found = read.measurements("synthetic", runs=runs)
    ran = [row for row in read.trials("synthetic", runs=runs).to_pylist() if row["outcome"] != "skipped"]
    metrics = {"search": 2, "confirm": 3, "posthoc": 2}
    assert found.num_rows == 3 * sum(metrics[row["phase"]] for row in ran)
    rows = [row for row in found.to_pylist() if row["trial_id"] == ran[0]["trial_id"]]
    assert [row["step"] for row in rows if row["metric"] == "train/loss"] == [10, 20, 30]
    assert [row["value"] for row in rows if row["metric"] == "valid/score"][-1] == ran[0][
        "metric.valid/score"
    ]
    assert {row["arm"] for row in rows} == {"arm-0"}


def test_a_dimension_with_values_of_several_kinds_is_text(tmp_path):
    plan = make_plan(1, trials_per_arm=3, seeds=())
    folder = launched(tmp_path, plan)
    drawn = ({"a": 1, "b": 1, "c": True, "d": None}, {"a": 0.5, "b": "x"}, {"a": 2, "b": True})
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        lease = ledger.claim(Holder.current())
        for number, assignment in enumerate(drawn):
            trial = replace(trial_of(plan, number), assignment=assignment)
            ledger.append([log.asked(1.0, trial)], lease)
        found = read.trials("synthetic", runs=folder.root.parent)  # it is held: that is no hindrance
    types = {name: found.schema.field(f"assignment.{name}").type for name in "abcd"}
    assert types == {"a": pa.float64(), "b": pa.string(), "c": pa.bool_(), "d": pa.bool_()}
    assert found["assignment.b"].to_pylist() == ["1", '"x"', "true"]


def test_a_sweep_that_runs_is_read_and_nothing_of_it_changes(tmp_path):
    folder = launched(tmp_path, PLAN)
    with Ledger.open(folder.ledger_url, PLAN.name) as ledger:
        lease = ledger.claim(Holder.current())
        trial = trial_of(PLAN, 0)
        began = [log.asked(1.0, trial), log.started(2.0, trial.trial_id, 1)]
        ledger.append([*began, log.measured(3.0, trial.trial_id, measurement(1))], lease)
        before = files(folder)
        (row,) = read.trials("synthetic", runs=str(folder.root.parent)).to_pylist()
        assert (row["outcome"], row["step"]) == (None, 1)
        assert read.measurements(str(folder.root)).num_rows == 2
        assert read.report("synthetic", runs=folder.root.parent).left == len(PLAN.trials)
        assert files(folder) == before
        ledger.release(lease)


def test_nothing_has_run(tmp_path):
    runs = launched(tmp_path, PLAN).root.parent
    assert read.trials("synthetic", runs=runs).num_rows == 0
    assert read.measurements("synthetic", runs=runs).num_rows == 0
    assert read.figures("synthetic", runs=runs) == {}


def test_a_sweep_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no sweep named 'missing'"):
        read.trials("missing", runs=tmp_path)


def test_report_and_figures_are_those_of_the_report(tmp_path):
    import matplotlib as mpl

    folder = finished(tmp_path, SCORED)
    made = read.report("synthetic", runs=folder.root.parent)
    assert made.sweep == "synthetic"
    assert made.left == 0
    before = mpl.get_backend()
    drawn = read.figures("synthetic", runs=folder.root.parent)
    assert list(drawn) == [*images(made)]
    assert drawn
    assert all(each.png.startswith(b"\x89PNG") for each in drawn.values())
    assert mpl.get_backend() == before


def test_tables_load_nothing_heavy(runs):
    script = (
        "import sys; from orchestrator.read import trials, measurements\n"
        f"trials('synthetic', runs={str(runs)!r}); measurements('synthetic', runs={str(runs)!r})\n"
        "print({'torch', 'ray', 'mlflow', 'optuna'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("set()", "")
