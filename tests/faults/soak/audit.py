"""What the stores hold after a round, compared with the truth: SQL, pyarrow and the file system alone."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.faults.soak.truth import Row, Rows, Truth
from tests.support.mlflow.mlflow_db import SeenRun, runs

Point = tuple[str, int, str, float]
"""Trial, step, metric, value."""
HALF_DONE = (
    ".writing-*",
    ".*.launching-*",
    ".*.parquet.*",
    ".*.tmp",
    ".mlflow.db-*",
)
"""Names under which something is written that is renamed when it is whole."""


@dataclass
class Found:
    """Everything that is not as it must be, one line each."""

    lost: list[str] = field(default_factory=list)
    duplicate: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    """Left RUNNING in MLflow, or held in the ledger."""
    differing: list[str] = field(default_factory=list)
    leftover: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """All, each with its sort."""
        for sort, lines in vars(self).items():
            yield from (f"{sort}: {line}" for line in lines)

    def compare(self, where: str, wanted: Iterable[Any], seen: Iterable[Any]) -> None:
        """Two collections of which each element must be in both, once."""
        needed, counted = Counter(wanted), Counter(seen)
        places, filled = ({each[:-1] for each in which} for which in (needed, counted))
        self.lost += [f"{where}: {each}" for each in needed - counted if each[:-1] not in filled]
        for each, times in (counted - needed).items():
            if each in needed:
                self.duplicate.append(f"{where}: {each}, {times} too many")
            elif each[:-1] in places:
                self.differing.append(f"{where}: {each}")
            else:
                self.other.append(f"{where}: {each} is nothing that was asked for")


def points(truth: Mapping[str, Truth]) -> list[Point]:
    """Every value of the sweep."""
    return [
        (trial_id, step, metric, value)
        for trial_id, trial in truth.items()
        for step, metrics in trial.measured.items()
        for metric, value in metrics.items()
    ]


def audit_ledger(rows: Rows, truth: Mapping[str, Truth], found: Found) -> None:
    """Every trial asked for and ended once, every step once, with the right values; nothing after the end."""
    if not rows.sound:
        found.other.append("ledger: SQLite's integrity check fails")
    if rows.held:
        found.running.append("ledger: the lease was not released")
    wanted = [(trial_id, "x", trial.x) for trial_id, trial in truth.items()]
    asked = [
        (row.trial_id, "x", row.payload["settings"]["model"]["x"]) for row in rows.rows if row.kind == "asked"
    ]
    found.compare("ledger, asked", wanted, asked)
    ends = [(row.trial_id, row.outcome) for row in rows.rows if row.outcome is not None]
    found.compare("ledger, end", [(trial_id, trial.outcome) for trial_id, trial in truth.items()], ends)
    measured = [row for row in rows.rows if row.kind == "measured"]
    seen = [
        (row.trial_id, row.step, metric, value) for row in measured for metric, value in row.payload.items()
    ]
    found.compare("ledger, measurement", points(truth), seen)
    clocks = [
        (trial_id, step, trial.seconds(step)) for trial_id, trial in truth.items() for step in trial.measured
    ]
    found.compare("ledger, seconds", clocks, [(row.trial_id, row.step, row.seconds) for row in measured])
    found.other += _disorder(rows.rows)


def _disorder(rows: Iterable[Row]) -> Iterator[str]:
    ended: set[str] = set()
    steps: dict[str, int] = {}
    tokens: dict[str, int] = {}
    seq = 0
    for row in rows:
        if row.seq <= seq:
            yield f"ledger: event {row.seq} comes after {seq}"
        seq = row.seq
        if row.trial_id is None:
            continue
        if row.trial_id in ended:
            yield f"ledger: {row.kind} of {row.trial_id} after its end"
        if row.step is not None and row.step <= steps.get(row.trial_id, -1):
            yield f"ledger: step {row.step} of {row.trial_id} after step {steps[row.trial_id]}"
        steps[row.trial_id] = row.step if row.step is not None else steps.get(row.trial_id, -1)
        if row.kind == "started" and row.payload["token"] != tokens.get(row.trial_id, 0) + 1:
            yield f"ledger: attempt {row.payload['token']} of {row.trial_id} is not the next"
        tokens[row.trial_id] = row.payload.get("token", tokens.get(row.trial_id, 0))
        if row.outcome is not None:
            ended.add(row.trial_id)


def audit_parquet(folder: Path, truth: Mapping[str, Truth], found: Found) -> None:
    """Rows of the Parquet files are the truth's."""
    seen = []
    for file in sorted((folder / "measurements").glob("*.parquet")):
        table = pq.read_table(file, columns=["trial_id", "step", "metric", "value"])
        seen += list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    found.compare("Parquet, measurement", points(truth), seen)
    if not (folder / "records.parquet").is_file():
        found.lost.append("Parquet: there is no records.parquet")
        return
    records = pq.read_table(folder / "records.parquet").to_pylist()
    wanted = [(trial_id, trial.last, trial.outcome) for trial_id, trial in truth.items()]
    last = [(each["trial_id"], (each["last"] or {}).get("step"), each["outcome"]) for each in records]
    found.compare("Parquet, record", wanted, last)


def audit_mlflow(database: Path, sweep: str, truth: Mapping[str, Truth], found: Found) -> None:
    """One run a trial, none open, the same history."""
    try:
        seen = runs(database, sweep)
    except AssertionError as error:
        found.duplicate.append(f"MLflow: {error}")
        return
    found.running += [f"MLflow: {key}" for key, run in seen.items() if run.status == "RUNNING"]
    found.other += [
        f"MLflow: {key} is {run.status}"
        for key, run in seen.items()
        if run.status not in {"FINISHED", "RUNNING"}
    ]
    trials = {key.rpartition("/")[2]: run for key, run in seen.items() if key.startswith("trial/")}
    found.compare(
        "MLflow, outcome",
        [(trial_id, trial.outcome) for trial_id, trial in truth.items()],
        [(trial_id, run.tags["haltsweep.outcome"]) for trial_id, run in trials.items()],
    )
    wanted = points(truth) + [
        (trial_id, step, "time/seconds", trial.seconds(step))
        for trial_id, trial in truth.items()
        for step in trial.measured
    ]
    found.compare("MLflow, metric", wanted, _points(trials))


def _points(trials: Mapping[str, SeenRun]) -> Iterator[Point]:
    for trial_id, run in trials.items():
        for metric, step, _, value in run.points:
            yield trial_id, step, metric, value


def audit_disk(root: Path, folder: Path, truth: Mapping[str, Truth], kept: set[str], found: Found) -> None:
    """Nothing half-done, and no checkpoint but those of confirmed trials."""
    for pattern in HALF_DONE:
        found.leftover += [f"file {path.relative_to(root)}" for path in root.rglob(pattern)]
    saved = {path.name for path in (folder / "checkpoints").glob("*")}
    found.leftover += [f"checkpoints of {trial_id}" for trial_id in sorted(saved - kept)]
    found.lost += [f"checkpoints of {trial_id}" for trial_id in sorted(kept - saved)]
    for trial_id in kept & saved:
        newest = max(each.name for each in (folder / "checkpoints" / trial_id).glob("step-*"))
        state = json.loads((folder / "checkpoints" / trial_id / newest / "state" / "state.json").read_text())
        last = truth[trial_id].last
        wanted = [last, truth[trial_id].measured[last]["train/chain"]]
        if state != wanted:
            found.differing.append(f"checkpoint of {trial_id}: {state}, not {wanted}")
