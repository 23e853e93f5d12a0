"""Images whose first pixel encodes the class; loading this module writes the published files."""

import atexit
import shutil
import tempfile
from pathlib import Path

import numpy as np

FOLDER = Path(tempfile.mkdtemp(prefix="haltsweep pictures "))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
BATCH_SIZE = 8
"""Images in a batch."""


def batches(seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return colours (uint8, BATCH_SIZE x 3072) and labels of every batch."""
    stream = np.random.default_rng(seed)
    batches_by_name = {}
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        colours = stream.integers(0, 256, (BATCH_SIZE, 3, 1024), dtype=np.uint8)
        labels = (np.arange(BATCH_SIZE) + BATCH_SIZE * number) % 10
        colours[:, :, 0] = 20 * labels[:, None]
        batches_by_name[name] = colours.reshape(BATCH_SIZE, -1), labels
    return batches_by_name


def write_files(folder: Path, seed: int) -> str:
    """Write six batches to `folder`, and return its path."""
    folder.mkdir()
    for name, (colours, labels) in batches(seed).items():
        records = np.concatenate([labels[:, None].astype(np.uint8), colours], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    return str(folder)


SMALL = {"name": "lra_image", "folder": write_files(FOLDER / "one", 0)}
RESEEDED = SMALL | {"folder": write_files(FOLDER / "other", 1)}


def solve(text: str) -> int:
    return round(int(text.split(maxsplit=1)[0]) / 20)
