"""Read the binary version of CIFAR-10: a label and 3 x 1024 colours in each record.

<folder>/data_batch_1.bin .. data_batch_5.bin, test_batch.bin   (cifar-10-batches-bin)
"""

from pathlib import Path

import numpy as np

from trainables.data.files import source_folder, unreadable_error

CLASSES = 10
COLOURS = 3
PIXELS = 1024
RECORD = 1 + COLOURS * PIXELS
FILES = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
"""Files by split."""


def check_files(folder: str | None) -> Path:
    """Return the folder as a path. Raises `ValueError` if files are missing."""
    content = "data_batch_1.bin .. data_batch_5.bin and test_batch.bin (the binary version of CIFAR-10)"
    return source_folder(folder, [name for names in FILES.values() for name in names], content)


def read_images(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return images (uint8, N x 3072, red, green, blue) and labels (int16). Raises `ValueError`."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise unreadable_error(file, error) from error
    if not content or len(content) % RECORD:
        raise ValueError(
            f"{file}: expected records of {RECORD} bytes, a label and 3 x 1024 colours, got {len(content)} "
            f"bytes, which end in the middle of one; fetch the file again"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, RECORD)
    bad_records = np.flatnonzero(records[:, 0] >= CLASSES)
    if len(bad_records):
        raise ValueError(
            f"{file}, byte {int(bad_records[0]) * RECORD}: expected a label from 0 to 9, got "
            f"{records[bad_records[0], 0]}"
        )
    return records[:, 1:], records[:, 0].astype(np.int16)
