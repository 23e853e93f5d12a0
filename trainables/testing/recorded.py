"""Emulate CUDA graphs on a CPU: record the operators of a pass and run them again on the same memory.

As in a CUDA graph, a replay reads and writes the tensors of the recorded pass, and retains every number that
the host passed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainables.layers.constant_shapes import BatchDependentError

HOST_WAITS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
"""Tags of operators for whose results the host waits."""
HOST_READS = (Tensor.numpy, Tensor.tolist, Tensor.__array__)
"""Functions that read values without an operator on a CPU, and wait or fail on a GPU."""


@dataclass(frozen=True)
class OperatorCall:
    """One operator, its arguments, and the tensors that it created."""

    operator: Any
    arguments: Sequence[Any]
    named: Mapping[str, Any]
    made: Sequence[Tensor]
    """All returned tensors, if any of them has separate memory; else empty."""

    def again(self) -> None:
        """Run the operator again on the present values of the same tensors."""
        found = _tensors(self.operator(*self.arguments, **self.named))
        for there, new in zip(self.made, found, strict=False):
            if _address(there) != _address(new):
                there.copy_(new)


class HostReads(TorchFunctionMode):
    """Raises BatchDependentError if the host reads the values of a tensor."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of PyTorch."""
        if func in HOST_READS:
            raise BatchDependentError(
                f"a captured pass must not read values on the host, got {func.__name__}"
            )
        return func(*args, **(kwargs or {}))


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records operators. Raises BatchDependentError for a pass that a CUDA graph cannot capture."""

    def __init__(self, known_tensors: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kept = list(known_tensors)
        """All tensors, referenced so that no memory is reused."""
        self._memory = {_address(each) for each in self._kept}
        self._calls: list[OperatorCall] = []

    @property
    def operators(self) -> list[str]:
        """Return the names of the recorded operators that a replay runs."""
        return [str(each.operator) for each in self._calls]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator and record it."""
        named = kwargs or {}
        given = _tensors((args, named))
        self._check(func, given, named)
        found = func(*args, **named)
        made, inputs = _tensors(found), {_address(each) for each in given}
        fresh = any(_address(each) not in inputs for each in made)
        if fresh or func._schema.is_mutable:
            self._calls.append(OperatorCall(func, args, named, made if fresh else ()))
        self._kept += made
        self._memory |= {_address(each) for each in made}
        return found

    def replay(self) -> None:
        """Run all operators again."""
        with torch.no_grad():
            for call in self._calls:
                call.again()

    def _check(self, func: Any, tensors: Sequence[Tensor], named: Mapping[str, Any]) -> None:
        if any(tag in func.tags for tag in HOST_WAITS) and named.get("output_size") is None:
            raise BatchDependentError(f"a captured pass must not wait for the device, got {func}")
        if any(each.numel() and _address(each) not in self._memory for each in tensors):
            raise BatchDependentError(
                "a captured pass must read only weights, its batch and results of both, got a tensor from the"
                f" host or from an earlier pass in {func}; compute it from tensors of this pass"
            )


class RecordingEngine:
    """Captures passes on a CPU (`training.graphed.Engine`)."""

    def __init__(self) -> None:
        self.recordings: list[Recording] = []
        """Captured passes, the newest last."""

    def warm_up(self, run: Callable[[], Tensor]) -> None:
        """Run a pass."""
        run()

    def capture(
        self, run: Callable[[], Tensor], state_tensors: Callable[[], list[Tensor]]
    ) -> tuple[Tensor, Callable[[], None]]:
        """Record a pass and return its result and a function that replays it."""
        recording = Recording(state_tensors())
        with recording, HostReads():
            found = run()
        self.recordings.append(recording)
        return found, recording.replay


def _tensors(value: Any) -> list[Tensor]:
    return [each for each in tree_leaves(value) if isinstance(each, Tensor)]


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
