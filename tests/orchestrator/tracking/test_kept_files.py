"""Files of trials that match `keep` remain after the trials, and are artifacts of their MLflow runs."""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from orchestrator.read import trials
from tests.support.processes.commands import Shell

pytestmark = pytest.mark.slow
SPEC = """
name: kept
question: Are files of trials kept?
trainable: job:train
baseline: {x: 0.0}
keep: ["plots/*.txt", model.bin]
confirm: {seeds: [1, 2], splits: [test]}
"""
CODE = """
from pathlib import Path

def train(settings, trial):
    Path("plots").mkdir()
    Path("plots/curve.txt").write_text(f"seed {trial.seed}")
    Path("plots/other.log").write_text("not kept")
    (trial.folder / "model.bin").write_bytes(b"weights")
    trial.report(1, {"test/loss": trial.seed * 1.0})
"""


def artifact_folder(database, trial_id):
    """Return the folder of the artifacts of a trial's run."""
    query = (
        "SELECT artifact_uri FROM runs JOIN tags USING (run_uuid) WHERE key = 'haltsweep.trial' AND value = ?"
    )
    with closing(sqlite3.connect(database)) as db:
        ((uri,),) = db.execute(query, (trial_id,)).fetchall()
    return Path(url2pathname(urlsplit(uri).path))


def test_kept_files_are_artifacts_of_the_run_of_their_trial(tmp_path):
    shell = Shell.at(tmp_path, SPEC, tracked=True)
    (shell.folder / "job.py").write_text(CODE)
    answer = shell.run("launch", "tiny.yaml", "--driver", "inline")
    assert answer.code == 0, answer
    seeds = {row["trial_id"]: row["seed"] for row in trials("kept", runs=shell.folder / "runs").to_pylist()}
    assert sorted(seeds.values()) == [1, 2]
    for trial_id, seed in seeds.items():
        folder = shell.folder / "runs" / "kept" / "kept" / trial_id
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert files == {"plots/curve.txt", "model.bin"}
        stored = artifact_folder(shell.folder / "runs" / "mlflow.db", trial_id) / "kept"
        for location in (folder, stored):
            assert (location / "plots" / "curve.txt").read_text() == f"seed {seed}"
            assert (location / "model.bin").read_bytes() == b"weights"
