"""Every metric name has a unique key in MLflow, and the counted value of a trial is logged."""

from pathlib import Path

import pytest

from orchestrator.identity import SweepFolder
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Objective
from orchestrator.tracking.mlflow.mlflow_writer import MlflowWriter
from orchestrator.tracking.sync import artifact_root
from tests.support.mlflow.mlflow_db import runs
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD, measurement, trial_of
from trainables.protocol import Measurement


def test_metrics_that_differ_in_refused_characters_have_different_keys(
    folder: SweepFolder, ledger: Ledger, database: Path, uri: str, plan: Plan
) -> None:
    metrics = {"mAP@50": 0.5, "mAP_50": 0.25, "valid/точность": 0.1, "valid/точность?": 0.2, "hits": 0.3}
    trial = trial_of(plan, 0)
    measured = Measurement(1, 1.0, metrics)
    lease = ledger.claim(Holder.current())
    ledger.append(
        [
            log.opened(1.0, DEAD, plan.spec_digest, {}),
            log.trial_assigned(2.0, trial),
            log.started(3.0, trial.trial_id, 1),
            log.measured(4.0, trial.trial_id, measured),
        ],
        lease,
    )
    ledger.release(lease)
    writer = MlflowWriter(uri, plan, ledger, artifact_root(folder))
    writer.update()
    mlflow_runs = runs(database, plan.name)
    run_ = next(run for key, run in mlflow_runs.items() if key.endswith(trial.trial_id))
    unchanged = {name: value for name, value in metrics.items() if name not in ("mAP@50", "valid/точность?")}
    assert unchanged.items() <= run_.latest.items()
    names = {
        key.removeprefix("haltsweep.metric."): name
        for key, name in run_.tags.items()
        if key.startswith("haltsweep.metric.")
    }
    assert set(names.values()) == {"mAP@50", "valid/точность?"}
    assert {name: run_.latest[key] for key, name in names.items()} | unchanged == metrics
    arm = next(run for key, run in mlflow_runs.items() if key.startswith("arm/"))
    assert {key: arm.tags.get(f"haltsweep.metric.{key}") for key in names} == names


def test_counted_value_of_a_trial_is_logged_with_its_last_report(
    folder: SweepFolder, ledger: Ledger, database: Path, uri: str
) -> None:
    objective = Objective(metric="valid/score", goal="max", scope="best")
    plan = make_plan(1, objectives=(objective,))
    trial = trial_of(plan, 0)
    lease = ledger.claim(Holder.current())
    ledger.append(
        [
            log.opened(1.0, DEAD, plan.spec_digest, {}),
            log.trial_assigned(2.0, trial),
            log.started(3.0, trial.trial_id, 1),
            *(log.measured(3.0 + step, trial.trial_id, measurement(step, 1 / step)) for step in (1, 2, 3)),
        ],
        lease,
    )
    ledger.release(lease)
    writer = MlflowWriter(uri, plan, ledger, artifact_root(folder))
    writer.update()
    run_ = next(run for key, run in runs(database, plan.name).items() if key.endswith(trial.trial_id))
    assert run_.latest["valid/score"] == pytest.approx(1 / 3)
    assert run_.latest["valid/score.best"] == 1.0
