"""Forward passes that can be captured as a CUDA graph: no host decision depends on the batch.

A CUDA graph runs the same kernels on the same memory at each replay, and keeps all sizes and numbers that the
host set when it was captured. Inside `ConstantShapes.warming` and `.capturing`

* rows, width and number of tokens of a batch are the same for all batches, and lengths stay on the device;
* tables that the host uploads are uploaded in warming passes only, and must be the same in each of them;
* keys of dropout masks are parts of one buffer, which is written before each replay.

A pass that violates this raises `BatchDependentError` while it is warmed up or captured.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from trainables.seeds import derive

Value = TypeVar("Value")
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


def cached_constants(maxsize: int | None) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Return a decorator for functions whose tensors depend only on the arguments; it caches the tensors.

    A captured graph reads such tensors at their addresses, so its constant shapes keep a reference to each.
    """

    def decorate(make: Callable[..., Value]) -> Callable[..., Value]:
        cached = lru_cache(maxsize=maxsize)(torch.inference_mode(mode=False)(torch.no_grad()(make)))

        @wraps(make)
        def constants(*arguments: Any) -> Value:
            shapes = _ACTIVE.get()
            if shapes is None:
                return cached(*arguments)
            return shapes.constant((make, arguments), lambda: cached(*arguments))

        return constants

    return decorate


def split_key(key: int) -> tuple[int, int]:
    """Return the two 31-bit numbers of a key that are combined with places before hashing."""
    return key & 0x7FFFFFFF, key >> 32


class DropoutKeys:
    """Keys of all dropout masks of a pass, as a function of seed and step."""

    def __init__(self) -> None:
        self._names: list[tuple[StreamName, int]] = []
        """Name of each stream and number of the call, in the order of draws."""
        self._numbers: dict[int, int] = {}
        """Number of the draw of each key."""
        self._buffer: Int[Tensor, "K 2"] | None = None

    def begin(self, buffer: Int[Tensor, "K 2"] | None) -> None:
        """Start a pass: it reads keys from `buffer`, or records which keys it needs if `buffer` is None."""
        self._buffer = buffer
        self._numbers.clear()
        if buffer is None:
            self._names = []

    def record_key(self, key: int, name: StreamName, call: int) -> None:
        """Record that `key` is the key of call number `call` of the stream `name`."""
        number = self._numbers[key] = len(self._numbers)
        if self._buffer is None:
            self._names.append((name, call))
        elif self._names[number : number + 1] != [(name, call)]:
            raise BatchDependentError(
                f"a pass must draw the same dropout masks in the same order each time, got others in draw "
                f"{number}"
            )

    def split(self, key: int) -> tuple[int, int] | tuple[Tensor, Tensor]:
        """Return `split_key(key)`; a captured pass reads it from its buffer."""
        if self._buffer is None:
            return split_key(key)
        low, high = self._buffer[self._numbers[key]].unbind()
        return low, high

    def values(self, seed: int, step: int) -> Int[np.ndarray, "K 2"]:
        """Return all split keys of optimiser step `step`, in the order of draws."""
        # The name of a stream is ("dropout", step, part, module).
        keys = [derive(seed, name[0], step, *name[2:], call) for name, call in self._names]
        return np.array(list(map(split_key, keys)), dtype=np.int32).reshape(-1, 2)


class ConstantShapes:
    """Host-built values of one captured pass: tables, counts, cached tensors and dropout keys."""

    def __init__(self) -> None:
        self.keys = DropoutKeys()
        self._tables: list[tuple[np.ndarray, Tensor]] = []
        self._constants: dict[Any, Any] = {}
        self._number = 0
        self._is_capturing = False

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
        with self._activate(captures=False, buffer=None):
            yield

    @contextmanager
    def capturing(self, buffer: Int[Tensor, "K 2"]) -> Iterator[None]:
        """Let a forward pass read the tables of warming passes, and its dropout keys from `buffer`."""
        with self._activate(captures=True, buffer=buffer):
            yield

    @contextmanager
    def _activate(self, *, captures: bool, buffer: Tensor | None) -> Iterator[None]:
        self._is_capturing, self._number = captures, 0
        self.keys.begin(buffer)
        token = _ACTIVE.set(self)
        try:
            yield
        finally:
            _ACTIVE.reset(token)

    def table(self, table: Shaped[np.ndarray, "..."], device: torch.device) -> Shaped[Tensor, "..."]:
        """Copy `table` to `device`. Raise BatchDependentError if earlier passes had another table here."""
        number, self._number = self._number, self._number + 1
        if number == len(self._tables) and not self._is_capturing:
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
        if not self._is_capturing:
            self.table(total := np.array([int(tokens.sum())]), tokens.device)
            return int(total[0])
        total = self._tables[self._number][0] if self._number < len(self._tables) else np.zeros(1)
        self.table(total, tokens.device)
        return int(total[0])

    def constant(self, key: Any, make: Callable[[], Value]) -> Value:
        """Return the tensors cached for `key`; only a warming pass may call `make` to create them."""
        if key not in self._constants:
            if self._is_capturing:
                raise BatchDependentError(f"cached tensors must be created during warm-up, got {key} later")
            self._constants[key] = make()
        constant: Value = self._constants[key]
        return constant
