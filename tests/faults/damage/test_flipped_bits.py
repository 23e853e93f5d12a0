"""A flipped bit in any file of a sweep leaves readers right or raises one error."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError
from orchestrator.execution.checkpoints.worker_checkpoints import CheckpointDamaged, list_checkpoints, write
from orchestrator.execution.sweep.launch_folder import (
    Setup,
    create_sweep_folder,
    read_launched_plan,
    read_setup,
)
from orchestrator.identity import SweepFolder
from tests.support.specs.plans import make_plan
from tests.support.stores.flips import flip_random_bit
from trainables.protocol import Measurement

FLIPS = 20
PLAN = make_plan(2)


def write_state(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(bytes(range(64)))
    (folder / "position.json").write_text('{"step": 5}')


def count_detected_flips(file: Path, read: Callable[[], Any], error: type[Exception], seed: int) -> int:
    """Count the flips in `file` that make `read` raise `error`; all other reads must be unchanged."""
    stream, expected, content, detected = random.Random(seed), read(), file.read_bytes(), 0
    for _ in range(FLIPS):
        bit = flip_random_bit(file, stream)
        try:
            result = read()
        except error as raised:
            detected += file.name in str(raised)
        else:
            assert result == expected, f"bit {bit} of {file.name} went unnoticed"
        file.write_bytes(content)
    assert read() == expected
    return detected


def test_readers_detect_flips_in_launch_files(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "synthetic")
    create_sweep_folder(PLAN, folder, "name: synthetic\n", {"commit": "c0ffee"}, Setup(Path("data")))
    assert count_detected_flips(folder.plan, lambda: read_launched_plan(folder), StoreError, 0) == FLIPS
    setup = folder.root / "launch.json"
    assert count_detected_flips(setup, lambda: read_setup(folder), StoreError, 0) == FLIPS
    manifest = folder.root / "manifest.json"
    detected = count_detected_flips(
        manifest, lambda: (read_launched_plan(folder), read_setup(folder)), StoreError, 0
    )
    assert detected >= FLIPS - 2, "only a flip in the final newline may pass undetected"


@pytest.mark.parametrize("name", ["state/weights.bin", "checkpoint.json"])
def test_readers_detect_flips_in_a_checkpoint(tmp_path: Path, name: str) -> None:
    write(tmp_path, Measurement(5, 2.5, {"valid/score": 0.1, "train/loss": 3.25}), write_state)
    (checkpoint,) = list_checkpoints(tmp_path)

    def read() -> object:
        measurement = checkpoint.measurement()
        return measurement, [file.read_bytes() for file in sorted(checkpoint.state.iterdir())]

    assert count_detected_flips(checkpoint.folder / name, read, CheckpointDamaged, seed=1) >= FLIPS - 2
