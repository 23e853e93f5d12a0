"""What a sweep must have measured: computed from its plan alone, with no help of the code under test.

Which `x` a trial got and where its early stopper ended it is decided by the product; there the sweep that was
never disturbed is the measure, and all values are computed again.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.identity import derive_seed
from orchestrator.plan.types import Plan
from orchestrator.trials import PlannedTrial
from tests.support.sweeps.workloads import SECONDS_PER_STEP, score

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Row:
    """One row of the ledger, as it stands in the database."""

    seq: int
    kind: str
    trial_id: str | None
    step: int | None
    seconds: float | None
    outcome: str | None
    payload: dict[str, Any]


@dataclass(frozen=True)
class Truth:
    """One trial."""

    arm: str
    x: float
    outcome: str
    measured: Mapping[int, Metrics]
    """By step."""

    @property
    def last(self) -> int:
        """Its last step."""
        return max(self.measured)

    @staticmethod
    def seconds(step: int) -> float:
        """What its clock shows then."""
        return step * SECONDS_PER_STEP


QUERY = (
    "SELECT e.seq, e.kind, e.trial_id, e.step, e.seconds, e.outcome, e.payload FROM haltsweep_events e "
    "JOIN haltsweep_sweeps s ON e.sweep_id = s.id WHERE s.name = {} ORDER BY e.seq"
)
HOLDER = "SELECT holder FROM haltsweep_sweeps WHERE name = {}"


@dataclass(frozen=True)
class Rows:
    """A ledger, read by plain SQL."""

    rows: tuple[Row, ...]
    held: bool
    """Whether somebody still has the lease."""
    sound: bool = True


def read_sqlite(file: Path, sweep: str) -> Rows:
    """The embedded ledger."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        sound = db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = tuple(_rows(db.execute(QUERY.format("?"), (sweep,))))
        return Rows(rows, db.execute(HOLDER.format("?"), (sweep,)).fetchone() != (None,), sound)


def read_postgres(url: str, sweep: str) -> Rows:
    """The ledger of a team."""
    import psycopg

    with psycopg.connect(url) as db:
        rows = tuple(_rows(db.execute(QUERY.format("%s"), (sweep,))))
        return Rows(rows, db.execute(HOLDER.format("%s"), (sweep,)).fetchone() != (None,))


def _rows(found: Any) -> Iterator[Row]:
    for seq, kind, trial_id, step, seconds, outcome, payload in found:
        yield Row(seq, kind, trial_id, step, seconds, outcome, json.loads(payload))


def truths(plan: Plan, undisturbed: Rows) -> dict[str, Truth]:
    """Every trial by its id; assignments and early ends as of the sweep that nobody disturbed."""
    asked = {row.trial_id: row.payload for row in undisturbed.rows if row.kind == "asked"}
    ends = {row.trial_id: row.outcome for row in undisturbed.rows if row.outcome is not None}
    last = {row.trial_id: row.step for row in undisturbed.rows if row.step is not None}
    sources = {(each.arm, each.rank, each.seed): each for each in plan.trials if each.phase == "confirm"}
    found = {}
    for each in plan.trials:
        settings = asked[each.trial_id]["settings"]
        source = sources[each.arm, each.rank, each.seed] if each.phase == "posthoc" else each
        whole = dict(_measured(each, settings, last[source.trial_id] or 0))
        found[each.trial_id] = Truth(each.arm, settings["model"]["x"], str(ends[each.trial_id]), whole)
    return found


def _measured(trial: PlannedTrial, settings: Mapping[str, Any], last: int) -> Iterator[tuple[int, Metrics]]:
    model = settings["model"]
    shift = trial.overrides.get("model.shift", 0.0)
    assert isinstance(shift, float)
    steps = [*range(1, last + 1)] + ([last] if trial.phase == "posthoc" else [])
    chain = trial.seed
    for step in steps:
        chain = derive_seed(chain, step)
        value = score(model["x"], shift, step, trial.seed)
        metrics = {"valid/score": value, "valid/cost": model["x"], "train/chain": float(chain)}
        if step == settings["train"]["steps"] and trial.phase != "search":
            metrics["test/score"] = value
        if trial.phase != "posthoc":
            yield step, metrics
    if trial.phase == "posthoc":
        yield last, metrics
