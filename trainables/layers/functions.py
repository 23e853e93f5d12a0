"""Functions with gradients of their own, called without the checks that only functions for `vmap` need."""

from typing import Any, ClassVar

import torch

_FROM_TORCH: Any = vars(torch._C._FunctionBase)["apply"]


class Function(torch.autograd.Function):
    """One that is given no tensors of transforms of `torch.func` that are over: `run` does not look for them,
    which takes `apply` about as long as everything else that it does."""

    _at_once: ClassVar[Any]

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        cls._at_once = _FROM_TORCH.__get__(None, cls)

    @classmethod
    def run(cls, *given: Any) -> Any:
        """The result for what `forward` is `given`."""
        if torch._C._are_functorch_transforms_active():
            return cls.apply(*given)  # type: ignore[no-untyped-call]
        return cls._at_once(*given)
