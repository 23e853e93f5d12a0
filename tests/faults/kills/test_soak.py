"""Three deaths of a run that by hand has a thousand, and that its audit misses nothing."""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.faults.soak.audit import Found, audit_disk, audit_ledger, audit_mlflow, audit_parquet
from tests.faults.soak.rounds import MLFLOW, catch_up
from tests.faults.soak.schedule import SCENES, WEIGHTS, draw
from tests.faults.soak.sweep import Told, session
from tests.faults.soak.table import summary
from tests.faults.soak.truth import Truth, read_sqlite, truths
from tests.faults.soak.whole import Asked, run
from tests.support.stores.postgres import why_not

KILLS = 3
"""Of a worker of Ray, of a launcher and of PostgreSQL, each in a scene of its own."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.longest
def test_three_deaths_cost_nothing_but_steps(tmp_path: Path) -> None:
    if (missing := why_not()) is not None:
        pytest.skip(missing)
    results, lingering = run(Asked(KILLS, 0, tuple(WEIGHTS), parallel=2), tmp_path, print)
    table, well = summary(results, lingering)
    assert well, table
    assert sum((each.killed for each in results), Counter[str]()).total() == KILLS, table


@pytest.mark.parametrize("total", [1, 60, 1000])
def test_a_seed_draws_the_same_deaths_again(total: int) -> None:
    rounds = draw(total, 5)
    assert rounds == draw(total, 5)
    assert rounds != draw(total, 6)
    drawn = Counter(kill.kind for each in rounds for kill in each.kills)
    assert drawn.total() == total
    assert all(abs(drawn[kind] - total * WEIGHTS[kind] / 1000) < 1 for kind in WEIGHTS)
    for each in rounds:
        assert {kill.kind for kill in each.kills} <= set(SCENES[each.scene].kinds)


def test_only_what_is_asked_for_dies() -> None:
    assert {kill.kind for each in draw(40, 0, ("gcs", "raylet")) for kill in each.kills} == {"gcs", "raylet"}


Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Truth]]:
    """A sweep that is all well."""
    root = tmp_path_factory.mktemp("sound")
    shown = Told("inline", "audited", 2, None, None)
    shown.write(root)
    session(root)
    assert catch_up(root, shown) == 0
    place = shown.place(root)
    return root, truths(place.plan, read_sqlite(place.folder.ledger, "audited"))


def ledger(statement: str) -> Damage:
    """Damage done to the ledger."""

    def do(root: Path) -> None:
        with closing(sqlite3.connect(root / "runs" / "audited" / "ledger.db")) as db, db:
            assert db.execute(statement).rowcount

    return do


def mlflow(statement: str) -> Damage:
    """Damage done to MLflow."""

    def do(root: Path) -> None:
        with closing(sqlite3.connect(root / MLFLOW)) as db, db:
            assert db.execute(statement).rowcount

    return do


def parquet(root: Path) -> None:
    """One value is another."""
    file = root / "runs" / "audited" / "measurements" / "000000.parquet"
    table = pq.read_table(file)
    first = pc.equal(range_of(table), 0)
    changed = pc.if_else(first, 0.125, table["value"])
    pq.write_table(table.set_column(table.schema.get_field_index("value"), "value", changed), file)


def range_of(table):
    import pyarrow as pa

    return pa.array(range(len(table)))


ROW = "(SELECT seq FROM haltsweep_events WHERE kind = '{}' ORDER BY seq LIMIT 1 OFFSET 3)"
COPY = (
    "INSERT INTO haltsweep_events (sweep_id, seq, kind, at, trial_id, step, seconds, outcome, payload) "
    "SELECT sweep_id, 10000, kind, at, trial_id, step, seconds, outcome, payload FROM haltsweep_events "
    "WHERE seq = " + ROW
)


@pytest.mark.parametrize(
    ("sort", "damage"),
    [
        ("lost", ledger("DELETE FROM haltsweep_events WHERE seq = " + ROW.format("measured"))),
        ("lost", ledger("DELETE FROM haltsweep_events WHERE seq = " + ROW.format("ended"))),
        ("lost", mlflow("DELETE FROM metrics WHERE key = 'valid/score' AND step = 3")),
        ("lost", lambda root: shutil.rmtree(root / "runs" / "audited" / "checkpoints")),
        ("duplicate", ledger(COPY.format("measured"))),
        ("duplicate", ledger(COPY.format("ended"))),
        (
            "differing",
            ledger("UPDATE haltsweep_events SET seconds = 9 WHERE step = 1"),
        ),
        ("differing", mlflow("UPDATE metrics SET value = 0.125 WHERE key = 'train/chain' AND step = 3")),
        ("differing", parquet),
        ("running", ledger("UPDATE haltsweep_sweeps SET holder = 'somebody'")),
        ("running", mlflow("UPDATE runs SET status = 'RUNNING' WHERE name LIKE '%search 1'")),
        ("leftover", lambda root: (root / "runs" / "audited" / ".records.parquet.77").touch()),
        ("leftover", lambda root: (root / "runs" / "audited" / "checkpoints" / "someone's").mkdir()),
    ],
)
@pytest.mark.slow
def test_the_audit_sees_damage(
    sound: tuple[Path, dict[str, Truth]], tmp_path: Path, sort: str, damage: Damage
) -> None:
    original, truth = sound
    root = tmp_path / "copy"
    shutil.copytree(original, root)
    assert not list(audited(root, truth).lines())
    damage(root)
    assert vars(audited(root, truth))[sort]


def audited(root: Path, truth: dict[str, Truth]) -> Found:
    """Everything that the soak looks at but processes."""
    found = Found()
    place = Told.at(root).place(root)
    audit_ledger(read_sqlite(place.folder.ledger, "audited"), truth, found)
    audit_parquet(place.folder.root, truth, found)
    audit_mlflow(root / MLFLOW, "audited", truth, found)
    kept = {each.trial_id for each in place.plan.trials if each.phase == "confirm"}
    audit_disk(root, place.folder.root, truth, kept, found)
    return found
