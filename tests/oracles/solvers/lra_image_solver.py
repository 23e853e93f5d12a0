"""Pictures whose first pixel tells the class; files of both published forms, written when this is loaded."""

import atexit
import pickle
import shutil
import tempfile
from pathlib import Path

import numpy as np

FOLDER = Path(tempfile.mkdtemp(prefix="haltsweep pictures "))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
EACH = 8
"""Pictures in a batch."""


def batches(seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Colours (uint8, EACH x 3072) and labels of every batch."""
    stream = np.random.default_rng(seed)
    found = {}
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        colours = stream.integers(0, 256, (EACH, 3, 1024), dtype=np.uint8)
        labels = (np.arange(EACH) + EACH * number) % 10
        colours[:, :, 0] = 20 * labels[:, None]
        found[name] = colours.reshape(EACH, -1), labels
    return found


def python_2_pickle(colours: np.ndarray, labels: np.ndarray) -> bytes:
    """The batch as Python 2 wrote it: text is bytes, names are those of NumPy of that time."""

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


def written(folder: Path, seed: int, form: str) -> str:
    """The path of `folder` after its six batches have been written."""
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


SMALL = {"name": "lra_image", "folder": written(FOLDER / "one", 0, "python 2")}
RESEEDED = SMALL | {"folder": written(FOLDER / "other", 1, "binary")}


def solve(text: str) -> int:
    return round(int(text.split(maxsplit=1)[0]) / 20)
