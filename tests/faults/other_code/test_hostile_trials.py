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
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from orchestrator.execution import inline
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.trial_jobs import JobEncoder
from orchestrator.identity import SweepFolder
from orchestrator.ledger.fold import records
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import to_json
from orchestrator.plan.types import Plan
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.tracked_values import arm_metrics
from orchestrator.report.writers.json_file import as_json
from orchestrator.report.writers.write import write_report_folder
from orchestrator.tracking.summary import ArmSummary
from orchestrator.tracking.sync import sync
from orchestrator.trials import MAX_NUMBER, OutcomeKind, Record
from tests.support.processes.logs import MemoryLog, record
from tests.support.specs.examples import examples
from tests.support.specs.plans import make_arm, make_plan
from tests.support.stores.parquet_records import read_records
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
        inline.run_inline(Recorder(plan, ledger, lease, sweep), JobEncoder(PATH, 30.0, 1.0, 0.0, folder))
        assert Recorder(plan, ledger, lease, sweep).is_finished, "a later session must read what was written"
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
    with tempfile.TemporaryDirectory() as folder, patch.object(inline, "_open_debugger", lambda *_: False):
        recorder = record(one_trial(), log, root=Path(folder))
        inline.run_inline(recorder, JobEncoder(PATH, 30.0, 1.0, 0.0, Path(folder)), debug=True)
    (record_,) = records(log.events(), one_trial())
    return record_


@pytest.mark.slow
@examples(2, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(NAMES, NUMBERS, max_size=4))
@example({"a\ud800": 1, "b\0": 2**63, "valid/../x": 0})
def test_any_metric_names_and_numbers_are_stored(metrics: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        record_ = run_trial(Path(folder), Measurement(2**63 - 1, 0.5, metrics))
    assert record_.outcome is OutcomeKind.FINISHED, record_.reason
    assert sorted(record_.last.metrics.values()) == sorted(float(value) for value in metrics.values())


@pytest.mark.slow
@pytest.mark.parametrize("raised", [UnprintableError(), SystemExit("lone \ud800, NUL \0 and \x1b[2J")])
def test_exception_ends_only_its_trial(tmp_path: Path, raised: BaseException) -> None:
    record_ = run_trial(tmp_path, None, raised)
    assert record_.outcome is OutcomeKind.CRASHED
    assert record_.reason.startswith(f"{type(raised).__name__}:")


@pytest.mark.slow
def test_hostile_report_is_stored_in_postgresql(tmp_path: Path) -> None:
    with postgres() as server:
        record_ = run_trial(tmp_path, Measurement(1, 1.0, {"a\ud800\0": 2**63}), url=server.url())
    assert record_.outcome is OutcomeKind.FINISHED


@pytest.mark.parametrize(
    ("report", "quoted"),
    [
        (Measurement(1, 1.0, {"valid": {"x": 1.0}}), "metric .* dict .*'valid'"),
        (Measurement(1, 1.0, {"x": 10**400}), "metric .*64-bit float"),
        (Measurement(1, 1.0, {"x": np.zeros(2)}), "metric .* ndarray "),
        (Measurement(1, 1.0, {"x": np.bool_(1)}), "metric .* bool"),
        (Measurement(1, 1.0, {" ": 1.0}), "metric .* name"),
        (Measurement(1, 1.0, None), "metrics .* NoneType"),
        (Measurement(0.5, 1.0, {}), "step .* float"),
        (Measurement(-1, 1.0, {}), r"step .* 0 to 2\*\*63 - 1"),
        (Measurement(2**63, 1.0, {}), r"step .* 0 to 2\*\*63 - 1"),
        ({"x": 1.0}, r"trainables\.protocol\.Measurement.* dict"),
    ],
)
def test_invalid_report_crashes_its_trial_with_the_reason(report: Any, quoted: str) -> None:
    record_ = record_of(report)
    assert record_.outcome is OutcomeKind.CRASHED
    assert re.search(quoted, record_.reason), record_.reason


def test_loss_too_large_to_sum_is_a_divergence() -> None:
    record_ = record_of(Measurement(1, 1.0, {"train/loss": math.nextafter(MAX_NUMBER, math.inf)}))
    assert record_.outcome is OutcomeKind.DIVERGED


@pytest.mark.parametrize("value", [float("inf"), np.float32("nan")])
def test_non_finite_loss_diverges_and_other_metrics_are_stored(value: Any) -> None:
    record_ = record_of(Measurement(1, 1.0, {"train/loss": value}))
    assert record_.outcome is OutcomeKind.DIVERGED
    assert record_.reason.startswith("train/loss ")
    record_ = record_of(Measurement(1, 1.0, {"a\ud800": value}))
    assert record_.outcome is OutcomeKind.FINISHED
    assert not math.isfinite(record_.last.metrics[r"a\ud800"])
