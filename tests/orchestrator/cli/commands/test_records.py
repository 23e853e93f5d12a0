"""`haltsweep records` writes tables to standard output."""

import io
import os
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pytest

from orchestrator.cli.commands import records
from tests.support.processes.commands import PATIENCE_S
from tests.support.specs.plans import make_plan
from tests.support.sweeps.finished import finished

PLAN = make_plan(2)


@pytest.fixture
def sweep(tmp_path):
    return finished(tmp_path, PLAN, seed=1)


def test_pandas_reads_the_trial_table(haltsweep, sweep):
    result = haltsweep("records", "synthetic")
    table = pd.read_csv(io.StringIO(result.out))
    assert list(table.trial_id) == [trial.trial_id for trial in PLAN.trials]
    assert table.seed.tolist() == [trial.seed for trial in PLAN.trials]
    assert table["metric.valid/score"].notna().sum() == (table.outcome != "skipped").sum()


def test_piped_parquet_is_readable(sweep):
    command = [
        sys.executable,
        "-m",
        "orchestrator.cli.main",
        "records",
        str(sweep.root),
        "--format",
        "parquet",
    ]
    process = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    assert (process.returncode, process.stderr) == (0, b"")
    table = pd.read_parquet(io.BytesIO(process.stdout))
    assert list(table.trial_id) == [trial.trial_id for trial in PLAN.trials]


def test_closed_pipe_is_no_failure(sweep):
    command = [sys.executable, "-m", "orchestrator.cli.main", "records", str(sweep.root)]
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = subprocess.run(
        command, stdout=write_end, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False, close_fds=True
    )
    os.close(write_end)
    assert (process.returncode, process.stderr) == (0, b"")


def test_records_quote_text_that_spreadsheets_would_compute():
    texts = ["=1+1", "@x", "+a", "-b", "\tc", "-0.5", "plain", None]
    content = records._to_csv(pa.table({"=name": texts, "value": [-1.0] * len(texts)}))
    rows = pd.read_csv(io.BytesIO(content), dtype={"'=name": str})
    assert rows["'=name"].tolist()[:-1] == ["'=1+1", "'@x", "'+a", "'-b", "'\tc", "-0.5", "plain"]
    assert rows.value.tolist() == [-1.0] * len(texts)


def test_records_escape_control_characters_on_a_terminal(haltsweep, sweep, monkeypatch):
    monkeypatch.setattr(records, "_to_csv", lambda table: b'"a"\n"\x1b[31m"\n')
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert haltsweep("records", "synthetic").out == '"a"\n"\\x1b[31m"\n'
