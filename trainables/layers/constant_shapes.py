"""Forward passes that can be captured as a CUDA graph: no host decision depends on the batch.

A CUDA graph runs the same kernels on the same memory at each replay, and keeps all sizes and numbers that the
host set when it was captured. Inside `ConstantShapes.warming` and `.capturing`

* rows, width and number of tokens of a batch are the same for all batches, and lengths stay on the device;
* tables that the host uploads are uploaded in warming passes only, and must be the same in each of them;
* salts of dropout masks are parts of one buffer, which is written before each replay.

A pass that violates this raises `BatchDependentError` while it is warmed up or captured.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from trainables.layers.mask_draws import compute_salts
from trainables.seeds import derive

Made = TypeVar("Made")
StreamName = tuple[str | int, ...]
_ACTIVE: ContextVar["ConstantShapes | None"] = ContextVar("constant shapes", default=None)


class BatchDependentError(RuntimeError):
    """A pass cannot be captured because a host decision in it depends on the content of a batch."""


def constant_shapes() -> "ConstantShapes | None":
    """Return the constant shapes of the current forward pass; None if shapes may depend on the batch."""
    return _ACTIVE.get()


def refuse_host_read(subject: str) -> None:
    """Raise BatchDependentError in a pass with constant shapes, in which the host must not read `subject`."""
    if _ACTIVE.get() is not None:
        raise BatchDependentError(
            f"a pass with constant shapes must keep {subject} on the device, got a read by the host"
        )


def copy_to(table: Shaped[np.ndarray, "..."], device: torch.device) -> Shaped[Tensor, "..."]:
    """Copy a table to `device`; the host does not wait for the copy."""
    tensor = torch.from_numpy(table)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def cached_constants(maxsize: int | None) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """Return a decorator for functions whose tensors depend only on the arguments; it caches the tensors.

    A captured graph reads such tensors at their addresses, so its constant shapes keep a reference to each.
    """

    def decorate(make: Callable[..., Made]) -> Callable[..., Made]:
        cached = lru_cache(maxsize=maxsize)(torch.inference_mode(mode=False)(torch.no_grad()(make)))

        @wraps(make)
        def constants(*arguments: Any) -> Made:
            shapes = _ACTIVE.get()
            if shapes is None:
                return cached(*arguments)
            return shapes.constant((make, arguments), lambda: cached(*arguments))

        return constants

    return decorate


class SaltTable(NamedTuple):
    """Salts of one draw of masks, by the names of their streams."""

    names: list[tuple[StreamName, int]]
    """Name of each stream and the number of the call."""
    places: Int[np.ndarray, " W"]
    """For each word, the index of its stream in `names`."""
    numbers: Int[np.ndarray, " W"]
    """For each 32-bit word of a mask, the index of its element times `mask_draws.ODD_32`."""

    def equals(self, other: "SaltTable") -> bool:
        """Return whether another table is equal."""
        is_same = self.names == other.names and np.array_equal(self.places, other.places)
        return is_same and np.array_equal(self.numbers, other.numbers)


class Salts:
    """Salts of all dropout masks of a pass, as a function of seed and step."""

    def __init__(self) -> None:
        self._streams_by_key: dict[int, tuple[StreamName, int]] = {}
        self._tables: list[SaltTable] = []
        self._joined_table: SaltTable | None = None
        self._buffer: Int[Tensor, " W"] | None = None
        self._number = self._num_used = 0

    def note_key(self, key: int, name: StreamName, call: int) -> None:
        """Record that `key` is the key of call number `call` of the stream `name`."""
        self._streams_by_key[key] = name, call

    def begin(self, buffer: Int[Tensor, " W"] | None) -> None:
        """Start a pass: it reads salts from `buffer`, or records which salts it needs if `buffer` is None."""
        self._buffer, self._number, self._num_used = buffer, 0, 0
        self._streams_by_key.clear()
        if buffer is None:
            self._tables, self._joined_table = [], None

    def table(
        self, key: Int[np.ndarray, "*K"] | int, number: Int[np.ndarray, "*C"], device: torch.device
    ) -> Int[Tensor, "*W"]:
        """Return `mask_draws.compute_salts(key, number)` on `device`."""
        salts = compute_salts(key, number)
        table, size = self._table_of_keys(key, number, salts.shape), salts.size
        place, begin = self._number, self._num_used
        self._number, self._num_used = place + 1, begin + size
        if self._buffer is None:
            self._tables.append(table)
            return copy_to(salts, device)
        if place >= len(self._tables) or not table.equals(self._tables[place]):
            raise BatchDependentError(
                f"a pass must draw the same dropout masks in the same order each time, got others in draw "
                f"{place}"
            )
        return self._buffer[begin : begin + size].view(salts.shape)

    def _table_of_keys(self, key: Any, number: Int[np.ndarray, "*C"], shape: tuple[int, ...]) -> SaltTable:
        keys, places = np.unique(np.asarray(key, dtype=np.int64), return_inverse=True)
        index, numbers = (
            np.broadcast_to(array, shape).ravel() for array in (places.reshape(np.shape(key)), number)
        )
        return SaltTable([self._streams_by_key[int(key)] for key in keys], index, numbers)

    @property
    def size(self) -> int:
        """Total number of words in all tables."""
        return sum(table.places.size for table in self._tables)

    def values(self, seed: int, step: int) -> Int[np.ndarray, " W"]:
        """Return all salts for the pass of optimiser step `step`, in the order in which it reads them."""
        if not self._tables:
            return np.zeros(0, dtype=np.int32)
        names, index, numbers = self._joined_table = self._joined_table or self._join_tables()
        # The name of a stream is ("dropout", step, part, module).
        keys = [derive(seed, name[0], step, *name[2:], call) for name, call in names]
        return compute_salts(np.array(keys, dtype=np.int64)[index], numbers)

    def _join_tables(self) -> SaltTable:
        """Return all recorded tables joined into one."""
        starts = np.cumsum([0, *(len(table.names) for table in self._tables)])
        index = [table.places + begin for table, begin in zip(self._tables, starts, strict=False)]
        names = [name for table in self._tables for name in table.names]
        return SaltTable(
            names, np.concatenate(index), np.concatenate([table.numbers for table in self._tables])
        )


class ConstantShapes:
    """Host-built values of one captured pass: tables, counts, cached tensors and salts."""

    def __init__(self) -> None:
        self.salts = Salts()
        self._tables: list[tuple[np.ndarray, Tensor]] = []
        self._constants: dict[Any, Any] = {}
        self._number = 0
        self._captures = False

    @property
    def tensors(self) -> list[Tensor]:
        """Tensors that the captured pass reads but does not compute."""
        constants = [
            constant if isinstance(constant, tuple) else (constant,) for constant in self._constants.values()
        ]
        return [table for _, table in self._tables] + [constant for group in constants for constant in group]

    @contextmanager
    def warming(self) -> Iterator[None]:
        """Let a forward pass build its tables and constants, or check that they are unchanged."""
        with self._running(captures=False, buffer=None):
            yield

    @contextmanager
    def capturing(self, buffer: Int[Tensor, " W"]) -> Iterator[None]:
        """Let a forward pass read the tables of warming passes, and its salts from `buffer`."""
        with self._running(captures=True, buffer=buffer):
            yield

    @contextmanager
    def _running(self, *, captures: bool, buffer: Tensor | None) -> Iterator[None]:
        self._captures, self._number = captures, 0
        self.salts.begin(buffer)
        token = _ACTIVE.set(self)
        try:
            yield
        finally:
            _ACTIVE.reset(token)

    def table(self, table: Shaped[np.ndarray, "..."], device: torch.device) -> Shaped[Tensor, "..."]:
        """Copy `table` to `device`. Raise BatchDependentError if earlier passes had another table here."""
        number, self._number = self._number, self._number + 1
        if number == len(self._tables) and not self._captures:
            self._tables.append((table.copy(), copy_to(table, device)))
        host_table, device_table = self._tables[number] if number < len(self._tables) else (np.zeros(0), None)
        if device_table is None or not np.array_equal(host_table, table):
            raise BatchDependentError(
                "tables created on the host must not depend on the batch, but the values differ in table "
                f"{number}"
                f" of shape {table.shape}; compute it from tensors on the device"
            )
        return device_table

    def count(self, tokens: Int[Tensor, " N"]) -> int:
        """Return the sum of `tokens`. Raise BatchDependentError if an earlier batch had another sum."""
        if not self._captures:
            self.table(total := np.array([int(tokens.sum())]), tokens.device)
            return int(total[0])
        total = self._tables[self._number][0] if self._number < len(self._tables) else np.zeros(1)
        self.table(total, tokens.device)
        return int(total[0])

    def constant(self, key: Any, make: Callable[[], Made]) -> Made:
        """Return the tensors cached for `key`; only a warming pass may call `make` to create them."""
        if key not in self._constants:
            if self._captures:
                raise BatchDependentError(f"cached tensors must be created during warm-up, got {key} later")
            self._constants[key] = make()
        constant: Made = self._constants[key]
        return constant
