"""Every metric name has a unique key in MLflow, and the counted value of a trial is logged."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.ledger import events as log
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Objective
from orchestrator.tracking.mlflow.mlflow_writer import MlflowWriter
from tests.orchestrator.tracking.conftest import append
from tests.support.mlflow.mlflow_db import StoredRun, runs
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD, measurement, trial_of
from trainables.protocol import Measurement


def first_trial_run(
    open_writer: Callable[..., MlflowWriter],
    ledger: Ledger,
    database: Path,
    plan: Plan,
    *measurements: Measurement,
) -> StoredRun:
    """Return the run of the first trial of `plan` after its measurements."""
    trial = trial_of(plan, 0)
    events = [
        log.claim_event(1.0, DEAD, plan.spec_digest, {}),
        log.params_event(2.0, trial),
        log.start_event(3.0, trial.trial_id, 1),
        *(log.measurement_event(3.0 + each.step, trial.trial_id, each) for each in measurements),
    ]
    append(ledger, events)
    open_writer(plan=plan).update()
    return next(run for key, run in runs(database, plan.name).items() if key.endswith(trial.trial_id))


def test_metrics_that_differ_in_refused_characters_have_different_keys(open_writer, ledger, database, plan):
    metrics = {"mAP@50": 0.5, "mAP_50": 0.25, "valid/точность": 0.1, "valid/точность?": 0.2, "hits": 0.3}
    run = first_trial_run(open_writer, ledger, database, plan, Measurement(1, 1.0, metrics))
    unchanged = {name: value for name, value in metrics.items() if name not in ("mAP@50", "valid/точность?")}
    assert unchanged.items() <= run.latest.items()
    prefix = "haltsweep.metric."
    names = {key.removeprefix(prefix): name for key, name in run.tags.items() if key.startswith(prefix)}
    assert {name: run.latest[key] for key, name in names.items()} | unchanged == metrics


def test_counted_value_of_a_trial_is_logged_with_its_last_report(open_writer, ledger, database):
    plan = make_plan(1, objectives=(Objective(metric="valid/score", goal="max", scope="best"),))
    reports = [measurement(step, 1 / step) for step in (1, 2, 3)]
    run = first_trial_run(open_writer, ledger, database, plan, *reports)
    assert (run.latest["valid/score"], run.latest["valid/score.best"]) == (pytest.approx(1 / 3), 1.0)
