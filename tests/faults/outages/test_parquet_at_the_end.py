"""The last write of the Parquet files fails in the background writer, after MLflow has everything.

So it was where PostgreSQL was killed between the two: the sweep ended without a word, and records of half of
it lay beside a ledger of all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.execution.live_view import Listeners
from orchestrator.tracking import state
from orchestrator.tracking.background import LOG
from orchestrator.tracking.parquet import read_records
from tests.faults.kills.chaos import Place, go
from tests.support.mlflow.mlflow_db import runs
from tests.support.specs.plans import make_plan

PLAN = make_plan(1, trials_per_arm=2, seeds=(7,))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, PLAN, f"sqlite:///{tmp_path / 'mlflow.db'}")


def block(place: Place) -> None:
    """Nothing can be written where measurements go, from the end of the sweep on."""
    place.folder.measurements.write_text("in the way")


@pytest.mark.slow
def test_the_launcher_writes_what_its_writer_could_not(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = state.projection_lock

    @contextmanager
    def once_the_way_is_free(root: Path, wait_s: float) -> Iterator[None]:
        place.folder.measurements.unlink()
        with taken(root, wait_s):
            yield

    monkeypatch.setattr(state, "projection_lock", once_the_way_is_free)
    finish = go(place, watch=Listeners(on_end=lambda: block(place)))
    assert "could not be written" in (place.folder.root / LOG).read_text()
    assert finish.untracked == ""
    assert len(read_records(place.folder)) == len(PLAN.trials)
    assert list(place.folder.measurements.iterdir())
    assert len(runs(place.root / "mlflow.db", PLAN.name)) == 1 + len(PLAN.arms) + len(PLAN.trials)


@pytest.mark.slow
def test_what_neither_can_write_is_told(place: Place) -> None:
    finish = go(place, watch=Listeners(on_end=lambda: block(place)))
    assert finish.untracked.startswith("the Parquet files in ")
    assert "run `haltsweep sync`: they are made from the ledger" in finish.untracked
