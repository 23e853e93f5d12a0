"""Random numbers that were drawn before are copied, where a plan builds models with shared modules again.

Most arms share most modules, whose weights come from streams named after them, and a proof builds each model
several times: filling large weights from a generator takes longer than all else of building them.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

DRAWS: Final = frozenset({torch.Tensor.uniform_, torch.Tensor.normal_})
LEAST: Final = 4096
"""Numbers: fewer are drawn as fast as they are looked up."""
MOST_BYTES: Final = 512 << 20
"""Memory of all that is kept; what was drawn longest ago goes first."""


class DrawnOnce(TorchFunctionMode):
    """Inside, a draw from a generator in a state in which the same was drawn before is a copy of that draw.

    The generator is afterwards in the state in which the draw left it, so nothing can tell the difference.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[Any, tuple[Tensor, Tensor]] = {}
        self._bytes = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Collection[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Every call of PyTorch inside comes here."""
        given = kwargs or {}
        generator = given.get("generator")
        if func not in DRAWS or generator is None or not _worth(args[0]):
            return func(*args, **given)
        filled: Tensor = args[0]
        how = sorted((name, value) for name, value in given.items() if value is not generator)
        state = generator.get_state().numpy().tobytes()
        key = (func, state, filled.shape, filled.dtype, args[1:], tuple(how))
        if (known := self._kept.get(key)) is not None:
            generator.set_state(known[1])
            with torch.no_grad():
                return filled.copy_(known[0])
        drawn = func(*args, **given)
        self._keep(key, filled.detach().clone(), generator.get_state())
        return drawn

    def _keep(self, key: Any, values: Tensor, state: Tensor) -> None:
        self._kept[key] = (values, state)
        self._bytes += values.nbytes
        while self._bytes > MOST_BYTES:
            self._bytes -= self._kept.pop(next(iter(self._kept)))[0].nbytes


def _worth(filled: Tensor) -> bool:
    return filled.device.type == "cpu" and filled.is_contiguous() and filled.numel() >= LEAST
