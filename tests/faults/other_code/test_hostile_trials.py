"""A trial may report any text or number.

Invalid reports end only the trial, and all outputs remain readable.
"""

import json
import math
import re
import sqlite3
import tempfile
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from orchestrator.execution import inline
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.identity import SweepFolder
from orchestrator.ledger.fold import records
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import to_json
from orchestrator.plan.types import Plan
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.tracked_values import arm_metrics
from orchestrator.report.writers.json_file import as_json
from orchestrator.report.writers.write import write_report_folder
from orchestrator.tracking.parquet import read_records
from orchestrator.tracking.summary import ArmSummary
from orchestrator.tracking.sync import sync
from orchestrator.trials import MAX_NUMBER, OutcomeKind, Record
from tests.support.processes.logs import MemoryLog, record
from tests.support.specs.examples import examples
from tests.support.specs.plans import make_arm, make_plan
from tests.support.stores.postgres import postgres
from tests.support.sweeps.histories import DEAD
from tests.support.training_code.hostile import PATH, UnprintableError, set_report
from trainables.protocol import Measurement

ANY_TEXT = st.text(st.characters(), max_size=20)
"""Text with lone surrogates, control characters and NULs."""
NUMBERS = (
    st.floats(-MAX_NUMBER, MAX_NUMBER)
    | st.integers(-int(MAX_NUMBER), int(MAX_NUMBER))
    | st.sampled_from([np.float32(0.5), np.int64(2**62), np.array(3.0), Decimal("0.1"), 2**63])
)
INVALID_NUMBERS = st.sampled_from([True, b"1", [1.0], {"valid": {"accuracy": 1.0}}, 1j, object(), 10**400])
NAMES = ANY_TEXT.filter(str.strip) | st.sampled_from(
    ["a//b", "../x", "/", ".", "x" * 300, "a\ud800", "a\0b", "=1+1"]
)


def one_trial() -> Plan:
    return make_plan([make_arm("one")], trials_per_arm=0, seeds=(7,))


def run_trial(
    folder: Path, report: Any, raised: BaseException | None = None, url: str | None = None
) -> Record:
    """Run a sweep of one trial through ledger, Parquet, MLflow, report and JSON; return its record."""
    sweep, plan = SweepFolder(folder / "runs" / "synthetic"), one_trial()
    sweep.root.mkdir(parents=True)
    sweep.plan.write_text(to_json(plan))
    set_report(report, raised)
    with Ledger.open(url or sweep.ledger_url, plan.name, create=True) as ledger:
        lease = ledger.claim(DEAD)
        inline.run_inline(Recorder(plan, ledger, lease, sweep), PATH, data_dir=folder)
        assert Recorder(plan, ledger, lease, sweep).finished, "a later session must read what was written"
        (record_,) = records(ledger.events(), plan)
        _project(sweep, plan, ledger, record_)
    return record_


def _project(sweep: SweepFolder, plan: Plan, ledger: Ledger, record_: Record) -> None:
    report = summarise(plan, [record_])
    write_report_folder(report, sweep.report)
    json.loads(as_json(report))
    json.dumps(record_.reason, ensure_ascii=False).encode()
    database = sweep.root.parent / "mlflow.db"
    database.write_bytes(EmptyStore.database())
    uri = f"sqlite:///{database}"
    assert sync(sweep, ledger, uri, ArmSummary(arm_metrics(report))).runs == 3
    assert sync(sweep, ledger, uri, ArmSummary(arm_metrics(report))).total == 0
    assert read_records(sweep) == [record_]
    with closing(sqlite3.connect(database)) as store:
        for (value,) in store.execute("SELECT value FROM tags"):
            value.encode()


class EmptyStore:
    """MLflow's empty database, created once, because that takes seconds."""

    _content = b""

    @classmethod
    def database(cls) -> bytes:
        if not cls._content:
            with tempfile.TemporaryDirectory() as folder:
                from orchestrator.tracking.mlflow.mlflow_runs import RunStore

                file = Path(folder) / "mlflow.db"
                RunStore(f"sqlite:///{file}", "none", Path(folder))
                with closing(sqlite3.connect(file)) as store:
                    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                cls._content = file.read_bytes()
        return cls._content


def record_of(report: Any) -> Record:
    """Return the record of a trial with this report, without a ledger, projections and a subprocess."""
    set_report(report)
    log = MemoryLog()
    with tempfile.TemporaryDirectory() as folder, patch.object(inline, "_post_mortem", lambda *_: False):
        recorder = record(one_trial(), log, root=Path(folder))
        inline.run_inline(recorder, PATH, data_dir=Path(folder), debug=True)
    (record_,) = records(log.events(), one_trial())
    return record_


BOUNDED = examples(6, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@BOUNDED
@given(st.dictionaries(NAMES, NUMBERS, max_size=4))
@example({"a\ud800": 1, "b\0": 2**63, "valid/../x": 0})
def test_any_metric_names_and_numbers_are_stored(metrics: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        record_ = run_trial(Path(folder), Measurement(2**63 - 1, 0.5, metrics))
    assert record_.outcome is OutcomeKind.FINISHED, record_.reason
    assert record_.last is not None
    assert sorted(record_.last.metrics.values()) == sorted(float(value) for value in metrics.values())


@pytest.mark.slow
@BOUNDED
@given(
    st.one_of(
        st.builds(RuntimeError, ANY_TEXT), st.builds(KeyError, ANY_TEXT), st.builds(SystemExit, ANY_TEXT)
    )
)
@example(ValueError("lone \ud800, NUL \0 and \x1b[2J"))
@example(UnprintableError())
@example(ExceptionGroup("\udfff", [ValueError("\0")]))
def test_exception_ends_only_its_trial(raised: BaseException) -> None:
    with tempfile.TemporaryDirectory() as folder:
        record_ = run_trial(Path(folder), None, raised)
    assert record_.outcome is OutcomeKind.CRASHED
    assert record_.reason.startswith(f"{type(raised).__name__}:")


@pytest.mark.slow
@pytest.mark.parametrize("raised", [None, ValueError("lone \ud800 and NUL \0")])
def test_hostile_reports_are_stored_in_postgresql(tmp_path: Path, raised: BaseException | None) -> None:
    with postgres() as server:
        record_ = run_trial(tmp_path, Measurement(1, 1.0, {"a\ud800\0": 2**63}), raised, server.url())
    assert record_.outcome is (OutcomeKind.FINISHED if raised is None else OutcomeKind.CRASHED)


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (
            Measurement(1, 1.0, {"valid": {"x": 1.0}}),
            r"a metric must be a number, got a dict for 'valid'",
        ),
        (
            Measurement(1, 1.0, {"x": 10**400}),
            r"a metric must fit into a 64-bit float, got a larger number for",
        ),
        (
            Measurement(1, 1.0, {"x": np.zeros(2)}),
            r"a metric must be one number, got a ndarray of shape \(2,\) for 'x'",
        ),
        (
            Measurement(1, 1.0, {" ": 1.0}),
            r"a metric must have a name, got the text ' '; fix the code",
        ),
        (Measurement(1, 1.0, {3: 1.0}), r"a metric must have a name, got a int; fix the code"),
        (Measurement(1, 1.0, None), r"metrics must be a mapping, got a NoneType; fix the code"),
        (Measurement(1, None, {}), r"a metric must be a number, got null for 'seconds'"),
        (Measurement(True, 1.0, {}), r"a step must be a whole number, got a bool; fix the code"),  # noqa: FBT003
        (Measurement(0.5, 1.0, {}), r"a step must be a whole number, got a float; fix the code"),
        (
            Measurement(-1, 1.0, {}),
            r"a step must be from 0 to 2\*\*63 - 1, got a number outside; fix the code",
        ),
        (
            Measurement(2**63, 1.0, {}),
            r"a step must be from 0 to 2\*\*63 - 1, got a number outside; fix the code",
        ),
        ({"x": 1.0}, r"a workload must report a trainables.protocol.Measurement, got a dict; fix the code"),
    ],
)
def test_invalid_report_crashes_its_trial_with_the_reason(report: Any, reason: str) -> None:
    record_ = record_of(report)
    assert record_.outcome is OutcomeKind.CRASHED
    assert re.match(reason, record_.reason), record_.reason


@pytest.mark.parametrize("value", [True, False, np.bool_(1), np.array(0, bool), torch.tensor(True)])  # noqa: FBT003
def test_boolean_metric_crashes_its_trial(value: Any) -> None:
    record_ = record_of(Measurement(7, 1.0, {"valid/solved": value}))
    assert record_.outcome is OutcomeKind.CRASHED
    message = (
        r"a (bool|bool_|ndarray|Tensor) for the text 'valid/solved' at step 7: report a share or a count"
    )
    assert re.match(f"a metric must be a number, got {message}", record_.reason), record_.reason


@given(INVALID_NUMBERS)
def test_metric_that_is_no_number_crashes_its_trial(value: Any) -> None:
    assert record_of(Measurement(1, 1.0, {"x": value})).outcome is OutcomeKind.CRASHED


@pytest.mark.parametrize("value", [math.nextafter(MAX_NUMBER, math.inf), -1e300, 10**300])
def test_loss_too_large_to_sum_is_a_divergence(value: float) -> None:
    record_ = record_of(Measurement(1, 1.0, {"train/loss": value}))
    assert record_.outcome is OutcomeKind.DIVERGED
    assert f"train/loss must stay finite, got {float(value)} at step 1" in record_.reason


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32("nan"), Decimal("-inf")])
def test_non_finite_loss_diverges_and_other_metrics_are_stored(value: Any) -> None:
    record_ = record_of(Measurement(1, 1.0, {"train/loss": value}))
    assert record_.outcome is OutcomeKind.DIVERGED
    assert record_.reason.startswith("train/loss must stay finite, got ")
    record_ = record_of(Measurement(1, 1.0, {"a\ud800": value}))
    assert record_.outcome is OutcomeKind.FINISHED
    assert record_.last is not None
    assert not math.isfinite(record_.last.metrics[r"a\ud800"])
