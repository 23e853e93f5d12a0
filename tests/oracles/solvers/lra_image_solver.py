"""Images whose first pixel encodes the class; loading this module writes both published file formats."""

import atexit
import pickle
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


def python_2_pickle(colours: np.ndarray, labels: np.ndarray) -> bytes:
    """Serialise a batch as Python 2 does: text as bytes, with NumPy's names of that time."""

    def text(value: bytes) -> bytes:
        return b"T" + len(value).to_bytes(4, "little") + value

    def number(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)

    empty = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        + number(0)
        + b"\x85"
        + text(b"b")
        + b"\x87R"
    )
    kind = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"
    kind += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    sizes = number(colours.shape[0]) + number(colours.shape[1]) + b"\x86"
    state = b"(" + number(1) + sizes + kind + b"\x89" + text(colours.tobytes()) + b"t"
    answers = b"](" + b"".join(map(number, labels.tolist())) + b"e"
    names = b"](" + b"".join(text(b"%d.png" % index) for index in range(len(labels))) + b"e"
    entries = [text(b"batch_label") + text(b"a batch"), text(b"labels") + answers]
    entries += [text(b"data") + empty + state + b"b", text(b"filenames") + names]
    return b"\x80\x02}(" + b"".join(entries) + b"u."


def write_files(folder: Path, seed: int, form: str) -> str:
    """Write six batches to `folder`, and return its path."""
    folder.mkdir()
    for name, (colours, labels) in batches(seed).items():
        if form == "binary":
            records = np.concatenate([labels[:, None].astype(np.uint8), colours], axis=1)
            (folder / f"{name}.bin").write_bytes(records.tobytes())
        elif form == "python 2":
            (folder / name).write_bytes(python_2_pickle(colours, labels))
        else:
            batch = {b"data": colours, b"labels": labels.tolist()}
            (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return str(folder)


SMALL = {"name": "lra_image", "folder": write_files(FOLDER / "one", 0, "python 2")}
RESEEDED = SMALL | {"folder": write_files(FOLDER / "other", 1, "binary")}


def solve(text: str) -> int:
    return round(int(text.split(maxsplit=1)[0]) / 20)
