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
    keywords: Mapping[str, Any]
    outputs: Sequence[Tensor]
    """All returned tensors, if any of them has separate memory; else empty."""

    def run_again(self) -> None:
        """Run the operator again on the present values of the same tensors."""
        new_outputs = _tensors(self.operator(*self.arguments, **self.keywords))
        for output, new_output in zip(self.outputs, new_outputs, strict=False):
            if _address(output) != _address(new_output):
                output.copy_(new_output)


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
        self._all_tensors = list(known_tensors)
        """All tensors, referenced so that no memory is reused."""
        self._memory = {_address(tensor) for tensor in self._all_tensors}
        self._calls: list[OperatorCall] = []

    @property
    def operators(self) -> list[str]:
        """Return the names of the recorded operators that a replay runs."""
        return [str(call.operator) for call in self._calls]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator and record it."""
        keywords = kwargs or {}
        given_tensors = _tensors((args, keywords))
        self._check(func, given_tensors, keywords)
        result = func(*args, **keywords)
        outputs, input_addresses = _tensors(result), {_address(tensor) for tensor in given_tensors}
        has_new_memory = any(_address(tensor) not in input_addresses for tensor in outputs)
        if has_new_memory or func._schema.is_mutable:
            self._calls.append(OperatorCall(func, args, keywords, outputs if has_new_memory else ()))
        self._all_tensors += outputs
        self._memory |= {_address(tensor) for tensor in outputs}
        return result

    def replay(self) -> None:
        """Run all operators again."""
        with torch.no_grad():
            for call in self._calls:
                call.run_again()

    def _check(self, func: Any, tensors: Sequence[Tensor], keywords: Mapping[str, Any]) -> None:
        if any(tag in func.tags for tag in HOST_WAITS) and keywords.get("output_size") is None:
            raise BatchDependentError(f"a captured pass must not wait for the device, got {func}")
        if any(tensor.numel() and _address(tensor) not in self._memory for tensor in tensors):
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
            result = run()
        self.recordings.append(recording)
        return result, recording.replay


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
