"""The launcher writes the Parquet files if the background writer fails at its last write.

A PostgreSQL server that is killed between the writes of MLflow and Parquet causes such a failure.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.execution.live_view import Listeners
from orchestrator.tracking import state
from orchestrator.tracking.background import LOG
from orchestrator.tracking.parquet import read_records
from tests.faults.kills.chaos import SweepSite, launch_or_resume
from tests.support.mlflow.mlflow_db import runs
from tests.support.specs.plans import make_plan

PLAN = make_plan(1, trials_per_arm=2, seeds=(7,))


@pytest.fixture
def place(tmp_path: Path) -> SweepSite:
    return SweepSite(tmp_path, PLAN, f"sqlite:///{tmp_path / 'mlflow.db'}")


def block_measurements(place: SweepSite) -> None:
    """Block the folder of measurements by a file of the same name."""
    place.folder.measurements.write_text("blocking file")


@pytest.mark.slow
def test_launcher_writes_parquet_files_that_its_writer_could_not(
    place: SweepSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_lock = state.projection_lock

    @contextmanager
    def once_the_way_is_free(root: Path, wait_s: float) -> Iterator[None]:
        place.folder.measurements.unlink()
        with original_lock(root, wait_s):
            yield

    monkeypatch.setattr(state, "projection_lock", once_the_way_is_free)
    finish = launch_or_resume(place, watch=Listeners(on_end=lambda: block_measurements(place)))
    assert "could not be written" in (place.folder.root / LOG).read_text()
    assert finish.untracked == ""
    assert len(read_records(place.folder)) == len(PLAN.trials)
    assert list(place.folder.measurements.iterdir())
    assert len(runs(place.root / "mlflow.db", PLAN.name)) == 1 + len(PLAN.arms) + len(PLAN.trials)


@pytest.mark.slow
def test_what_neither_can_write_is_told(place: SweepSite) -> None:
    finish = launch_or_resume(place, watch=Listeners(on_end=lambda: block_measurements(place)))
    assert finish.untracked.startswith("the Parquet files in ")
    assert "`haltsweep sync`" in finish.untracked
