"""The MLflow run of a failed trial that is retried."""

from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.mlflow.mlflow_db import runs
from tests.support.sweeps.histories import DEAD, measurement, trial_of


def test_run_of_a_retried_trial_is_reopened_with_its_new_measurements(open_writer, database, ledger, plan):
    trial = trial_of(plan, 0)
    crashed = Outcome(OutcomeKind.CRASHED, "a mistake")
    name = trial.trial_id
    lease = ledger.claim(Holder.current())
    first_events = [log.params_event(1.0, trial), log.start_event(1.0, name, 1)]
    first_events += [
        log.measurement_event(2.0, name, measurement(1, 0.1)),
        log.measurement_event(3.0, name, measurement(2, 0.2)),
    ]
    ledger.append(
        [log.claim_event(0.0, DEAD, "digest", {}), *first_events, log.end_event(4.0, name, crashed)], lease
    )

    writer = open_writer()
    writer.update()
    (key,) = [key for key in runs(database, plan.name) if key.startswith("trial/")]
    assert runs(database, plan.name)[key].status == "FAILED"
    retry_events = [
        log.retry_event(5.0, name, -1),
        log.start_event(5.0, name, 2),
        log.measurement_event(6.0, name, measurement(1, 0.3)),
    ]
    ledger.append([*retry_events, log.attributes_event(6.0, name, {"data/version": "v2"})], lease)
    writer.update()
    assert runs(database, plan.name)[key].status == "RUNNING"
    assert runs(database, plan.name)[f"arm/{trial.planned.arm}/-"].status == "RUNNING"
    finished = Outcome(OutcomeKind.FINISHED, "ran to step 2")
    ledger.append(
        [log.measurement_event(7.0, name, measurement(2, 0.4)), log.end_event(8.0, name, finished)], lease
    )
    open_writer().update()
    mlflow_runs = runs(database, plan.name)
    assert len([key for key in mlflow_runs if key.startswith("trial/")]) == 1
    assert (mlflow_runs[key].status, mlflow_runs[key].tags["data/version"]) == ("FINISHED", "v2")
    assert mlflow_runs[key].latest["valid/score"] == 0.4
    assert open_writer().update().total == 0, "MLflow must be complete"
