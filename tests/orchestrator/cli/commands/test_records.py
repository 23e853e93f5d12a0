"""`haltsweep records`: tables on standard output."""

import io
import os
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pytest

from orchestrator.cli.commands import records
from orchestrator.tracking.flat_tables import MEASURED
from tests.support.processes.commands import PATIENCE_S
from tests.support.specs.plans import make_plan
from tests.support.sweeps.finished import finished

PLAN = make_plan(2)


@pytest.fixture
def sweep(tmp_path):
    return finished(tmp_path, PLAN, seed=1)


def piped(sweep, *arguments):
    """The bytes on standard output of a process of its own."""
    command = [sys.executable, "-m", "orchestrator.cli.main", "records", str(sweep.root), *arguments]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def test_pandas_reads_the_trials(haltsweep, sweep):
    result = haltsweep("records", "synthetic")
    found = pd.read_csv(io.StringIO(result.out))
    assert list(found.trial_id) == [trial.trial_id for trial in PLAN.trials]
    assert found.seed.tolist() == [trial.seed for trial in PLAN.trials]
    assert found["metric.valid/score"].notna().sum() == (found.outcome != "skipped").sum()


def test_measurements_have_a_row_each(haltsweep, sweep):
    found = pd.read_csv(io.StringIO(haltsweep("records", "synthetic", "--measurements").out))
    assert list(found.columns) == MEASURED.names
    assert set(found.metric) == {"valid/score", "test/score", "train/loss"}


def test_parquet_is_binary_safe(sweep):
    found = pd.read_parquet(io.BytesIO(piped(sweep, "--format", "parquet")))
    assert list(found.trial_id) == [trial.trial_id for trial in PLAN.trials]


def test_parquet_is_not_written_to_a_terminal(haltsweep, sweep, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    result = haltsweep("records", "synthetic", "--format", "parquet")
    assert result.code == 2
    assert "> synthetic.parquet" in result.err


def test_a_terminal_gets_no_control_characters(haltsweep, sweep, monkeypatch):
    monkeypatch.setattr(records, "_csv", lambda table: b'"a"\n"\x1b[31m"\n')
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert haltsweep("records", "synthetic").out == '"a"\n"\\x1b[31m"\n'


def test_a_reader_that_has_enough_is_no_failure(sweep):
    command = [sys.executable, "-m", "orchestrator.cli.main", "records", str(sweep.root)]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False, close_fds=True
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_spreadsheets_compute_no_text():
    texts = ["=1+1", "@x", "+a", "-b", "\tc", "-0.5", "plain", None]
    content = records._csv(pa.table({"=name": texts, "value": [-1.0] * len(texts)}))
    found = pd.read_csv(io.BytesIO(content), dtype={"'=name": str})
    assert found["'=name"].tolist()[:-1] == ["'=1+1", "'@x", "'+a", "'-b", "'\tc", "-0.5", "plain"]
    assert found.value.tolist() == [-1.0] * len(texts)
