"""The four functions for notebooks; the tests write the ledgers by hand."""

import json
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from orchestrator import read
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
PLAN_WITH_METRIC = replace(PLAN, metrics=(Metric("score", better="max", shown=("headline",)),))


@pytest.fixture
def runs(tmp_path):
    return finished(tmp_path, PLAN, seed=1).root.parent


def stored_files(folder):
    """Return the files of the folder except SQLite's shared memory."""
    return {name: digest for name, digest in tree(folder.root).items() if not name.endswith("-shm")}


def test_trials_table_has_one_row_per_trial(runs):
    table = read.trials("synthetic", runs=runs)
    assert table.schema.names[: len(TRIALS)] == TRIALS.names
    assert table.num_rows == len(PLAN.trials)
    rows = table.to_pylist()
    assert [row["trial_id"] for row in rows] == [trial.trial_id for trial in PLAN.trials]
    assert {row["outcome"] for row in rows} == {kind.value for kind in OUTCOME_KINDS}
    for number, row in enumerate(rows):
        trial = trial_of(PLAN, number)
        assert row["assignment.model.x"] == trial.assignment["model.x"]
        assert row["overrides.model.shift"] == trial.planned.overrides.get("model.shift")
        assert json.loads(row["settings"]) == trial.settings
        assert row["started_at"] is None or row["started_at"].tzname() == "UTC"
        assert row["commit"] == "c0ffee"
        is_skipped = row["outcome"] == "skipped"
        assert (row["metric.train/loss"], row["step"]) == ((None, None) if is_skipped else (1 / 31, 30))


def test_measurements_table_has_every_reported_value(runs):
    table = read.measurements("synthetic", runs=runs)
    started_trials = [
        row for row in read.trials("synthetic", runs=runs).to_pylist() if row["outcome"] != "skipped"
    ]
    metrics = {"search": 2, "confirm": 3, "posthoc": 2}
    assert table.num_rows == 3 * sum(metrics[row["phase"]] for row in started_trials)
    rows = [row for row in table.to_pylist() if row["trial_id"] == started_trials[0]["trial_id"]]
    assert [row["step"] for row in rows if row["metric"] == "train/loss"] == [10, 20, 30]
    scores = [row["value"] for row in rows if row["metric"] == "valid/score"]
    assert scores[-1] == started_trials[0]["metric.valid/score"]


def test_param_with_values_of_several_types_is_text(tmp_path):
    plan = make_plan(1, trials_per_arm=3, seeds=())
    folder = launched(tmp_path, plan)
    all_params = ({"a": 1, "b": 1, "c": True, "d": None}, {"a": 0.5, "b": "x"}, {"a": 2, "b": True})
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        lease = ledger.claim(Holder.current())
        for number, assignment in enumerate(all_params):
            trial = replace(trial_of(plan, number), assignment=assignment)
            ledger.append([log.params_event(1.0, trial)], lease)
        table = read.trials("synthetic", runs=folder.root.parent)  # another session holds the sweep
    types = {name: table.schema.field(f"assignment.{name}").type for name in "abcd"}
    assert types == {"a": pa.float64(), "b": pa.string(), "c": pa.bool_(), "d": pa.bool_()}
    assert table["assignment.b"].to_pylist() == ["1", '"x"', "true"]


def test_reading_does_not_change_a_running_sweep(tmp_path):
    folder = launched(tmp_path, PLAN)
    with Ledger.open(folder.ledger_url, PLAN.name) as ledger:
        lease = ledger.claim(Holder.current())
        trial = trial_of(PLAN, 0)
        first_events = [log.params_event(1.0, trial), log.start_event(2.0, trial.trial_id, 1)]
        ledger.append([*first_events, log.measurement_event(3.0, trial.trial_id, measurement(1))], lease)
        files_before = stored_files(folder)
        (row,) = read.trials("synthetic", runs=str(folder.root.parent)).to_pylist()
        assert (row["outcome"], row["step"]) == (None, 1)
        assert read.measurements(str(folder.root)).num_rows == 2
        assert read.report("synthetic", runs=folder.root.parent).left == len(PLAN.trials)
        assert stored_files(folder) == files_before
        ledger.release(lease)


def test_read_returns_the_figures_of_the_report(tmp_path):
    import matplotlib as mpl

    folder = finished(tmp_path, PLAN_WITH_METRIC)
    report = read.report("synthetic", runs=folder.root.parent)
    backend_before = mpl.get_backend()
    figures = read.figures("synthetic", runs=folder.root.parent)
    assert list(figures) == [*images(report)]
    assert figures
    assert all(figure._repr_png_().startswith(b"\x89PNG") for figure in figures.values())
    assert mpl.get_backend() == backend_before


def test_reading_tables_imports_no_heavy_modules(runs):
    script = (
        "import sys; from orchestrator.read import trials, measurements\n"
        f"trials('synthetic', runs={str(runs)!r}); measurements('synthetic', runs={str(runs)!r})\n"
        "print({'torch', 'ray', 'mlflow', 'optuna'} & set(sys.modules))"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (process.stdout.strip(), process.stderr) == ("set()", "")
