"""Read CIFAR-10 in either published form: pickled batches for Python, or the binary version.

    <folder>/data_batch_1 .. data_batch_5, test_batch             (cifar-10-batches-py)
    <folder>/data_batch_1.bin .. data_batch_5.bin, test_batch.bin (cifar-10-batches-bin)

Reading a pickle can run code. This reader runs none. It admits dictionaries, lists, numbers, byte strings and
arrays of bytes, which it rebuilds itself. Any other name in a file is refused before it is looked up.
"""

import io
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trainables.data.files import source_folder, unreadable_error

CLASSES = 10
COLOURS = 3
PIXELS = 1024
RECORD = 1 + COLOURS * PIXELS
TRAIN, TEST = tuple(f"data_batch_{number}" for number in range(1, 6)), "test_batch"


class RefusedPickle(ValueError):
    """A pickle refers to a name that is not admitted."""


class _ByteType:
    """Replaces the dtype of an array, which is always a byte."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        """Do nothing: byte order and other properties do not apply to bytes."""


class _ByteArray:
    """Replaces an array until its state is read."""

    __slots__ = ("pixels",)

    def __init__(self) -> None:
        self.pixels: np.ndarray = np.zeros(0, dtype=np.uint8)

    def __setstate__(self, state: object) -> None:
        match state:
            case (_, tuple(sizes), _ByteType(), by_column, bytes(content)) if (
                all(type(size) is int and size >= 0 for size in sizes)
                and not by_column
                and math.prod(sizes) == len(content)
            ):
                self.pixels = np.frombuffer(content, dtype=np.uint8).reshape(sizes)
            case _:
                raise RefusedPickle("an array whose data does not match its shape")


class _Unpickler(pickle.Unpickler):
    """Admits the four names in a pickled array of bytes, each replaced by a function of this module."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the replacement of an admitted name. Raises `RefusedPickle` for any other."""
        replacements: dict[tuple[str, str], Callable[..., Any]] = {
            ("numpy", "ndarray"): _refuse_call,
            ("numpy", "dtype"): _byte_type,
            ("numpy.core.multiarray", "_reconstruct"): _byte_array,
            ("numpy._core.multiarray", "_reconstruct"): _byte_array,
            ("_codecs", "encode"): _encode_latin,
        }
        if (module, name) not in replacements:
            raise RefusedPickle(f"the name {module}.{name}, which CIFAR batches do not use")
        replacement = replacements[module, name]
        # Return a new function per call, because a pickle could set attributes of a shared one.
        return lambda *arguments: replacement(*arguments)  # noqa: PLW0108


def _refuse_call(*_: object) -> None:
    raise RefusedPickle("an unexpected constructor of an array")


def _byte_type(code: object = None, *_: object) -> _ByteType:
    if code not in ("u1", b"u1"):
        raise RefusedPickle(f"an array of {code!r} where there are only bytes")
    return _ByteType()


def _byte_array(*_: object) -> _ByteArray:
    return _ByteArray()


def _encode_latin(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise RefusedPickle("text in an encoding of its own")
    return text.encode("latin1")


def names(folder: str | None) -> dict[str, tuple[str, ...]]:
    """Return the files of the splits `train` and `test`, in the form that exists. Raises `ValueError`."""
    is_binary = folder is not None and (Path(folder) / f"{TRAIN[0]}.bin").is_file()
    suffix = ".bin" if is_binary else ""
    files = {"train": tuple(f"{name}{suffix}" for name in TRAIN), "test": (f"{TEST}{suffix}",)}
    content = f"{TRAIN[0]} .. {TRAIN[-1]} and {TEST} (CIFAR-10 for Python) or the same with .bin"
    source_folder(folder, [*files["train"], *files["test"]], content)
    return files


def read_images(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return images (uint8, N x 3072, red, green, blue) and labels (int16). Raises `ValueError`."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise unreadable_error(file, error) from error
    return _read_binary(file, content) if file.suffix == ".bin" else _read_pickle(file, content)


def _read_binary(file: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
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


def _read_pickle(file: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    expected = f"{file}: expected a pickled CIFAR-10 batch (a dictionary of b'data' and b'labels')"
    try:
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise ValueError(f"{expected}, got {type(error).__name__}: {error}; fetch the file again") from error
    if not isinstance(batch, dict) or not {b"data", b"labels"} <= batch.keys():
        raise ValueError(f"{expected}, got {type(batch).__name__} without them; fetch the file again")
    data, labels = batch[b"data"], batch[b"labels"]
    if not isinstance(data, _ByteArray) or data.pixels.shape[1:] != (RECORD - 1,) or not len(data.pixels):
        raise ValueError(
            f"{expected} whose data are rows of {RECORD - 1} bytes, got others; fetch the file again"
        )
    if not isinstance(labels, list) or len(labels) != len(data.pixels):
        raise ValueError(f"{expected} with a label for each of its {len(data.pixels)} images, got others")
    for number, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < CLASSES:
            raise ValueError(f"{expected}, image {number}: a label from 0 to 9, got {label!r}")
    return data.pixels, np.asarray(labels, dtype=np.int16)
