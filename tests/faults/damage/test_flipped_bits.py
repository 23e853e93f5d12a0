"""Any one bit of any file that we keep: what is read is what was written, or one error, or made anew."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError
from orchestrator.execution.checkpoints.worker_checkpoints import CheckpointDamaged, list_checkpoints, write
from orchestrator.execution.sweep.launch_folder import Setup, publish, read_launched_plan, read_setup
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from orchestrator.tracking import projections
from orchestrator.tracking.parquet import ParquetFiles, check_files, read_records
from tests.support.specs.plans import make_plan
from tests.support.stores.flips import flip_random_bit
from tests.support.sweeps.histories import DEAD, history
from trainables.protocol import Measurement

FLIPS = 40
REMADE = 10
"""Flips of a Parquet file, which is made anew after each."""
PLAN = make_plan(2)


def save(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(bytes(range(64)))
    (folder / "position.json").write_text('{"step": 5}')


def harmless_or_told(file: Path, read: Callable[[], Any], error: type[Exception], seed: int) -> int:
    """How many flips were told by `error`; the others must not have changed what is read."""
    stream, sound, whole, shown = random.Random(seed), read(), file.read_bytes(), 0
    for _ in range(FLIPS):
        bit = flip_random_bit(file, stream)
        try:
            found = read()
        except error as one:
            shown += file.name in str(one)
        else:
            assert found == sound, f"bit {bit} of {file.name} went unnoticed"
        file.write_bytes(whole)
    assert read() == sound
    return shown


def test_the_files_of_a_launch(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "synthetic")
    publish(PLAN, folder, "name: synthetic\n", {"commit": "c0ffee"}, Setup(Path("data")))
    assert harmless_or_told(folder.plan, lambda: read_launched_plan(folder), StoreError, 0) == FLIPS
    setup = folder.root / "launch.json"
    assert harmless_or_told(setup, lambda: read_setup(folder), StoreError, 0) == FLIPS
    manifest = folder.root / "manifest.json"
    shown = harmless_or_told(
        manifest, lambda: (read_launched_plan(folder), read_setup(folder)), StoreError, 0
    )
    assert shown >= FLIPS - 2, "all but its last byte, which is no more than the end of a line"


def test_parquet_files_and_their_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers refuse what is damaged, and the next update makes it again, byte for byte."""
    monkeypatch.setattr(projections, "TRIES", 1)
    folder, stream = SweepFolder(tmp_path / "synthetic"), random.Random(0)
    folder.root.mkdir()
    with Ledger.open(folder.ledger_url, folder.name, create=True) as ledger:
        ledger.append(list(history(PLAN, 1)), ledger.claim(DEAD))
        assert ParquetFiles(folder, PLAN, ledger).update() == 2
        sound = {file: file.read_bytes() for file in folder.root.rglob("*.parquet")}
        listed = (folder.root / projections.LIST).read_bytes()
        for file in [*sound, folder.root / projections.LIST]:
            for _ in range(REMADE):
                bit = flip_random_bit(file, stream)
                if file == folder.records:
                    with pytest.raises(StoreError, match=r"changed or damaged since; make it again with"):
                        read_records(folder)
                wrong = check_files(folder, PLAN, ledger)
                if file in sound:
                    assert wrong[file], f"bit {bit} of {file.name} went unnoticed"
                assert ParquetFiles(folder, PLAN, ledger).update() == (
                    1 if file in sound else 2 * any(wrong.values())
                )
                assert {each: each.read_bytes() for each in sound} == sound
                assert set(check_files(folder, PLAN, ledger).values()) == {""}
        assert (folder.root / projections.LIST).read_bytes() == listed


@pytest.mark.parametrize("name", ["state/weights.bin", "state/position.json", "checkpoint.json"])
def test_a_checkpoint(tmp_path: Path, name: str) -> None:
    write(tmp_path, Measurement(5, 2.5, {"valid/score": 0.1, "train/loss": 3.25}), save)
    (checkpoint,) = list_checkpoints(tmp_path)

    def read() -> object:
        measurement = checkpoint.measurement()
        return measurement, [file.read_bytes() for file in sorted(checkpoint.state.iterdir())]

    assert harmless_or_told(checkpoint.folder / name, read, CheckpointDamaged, seed=1) >= FLIPS - 2
