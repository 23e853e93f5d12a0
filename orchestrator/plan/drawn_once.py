"""What is drawn once for a plan: random numbers of modules that models share, and models that are run again.

Most arms share most modules, whose weights come from streams named after them, and a proof builds each model
several times: filling large weights from a generator takes longer than all else of building them.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
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


@dataclass(frozen=True, slots=True)
class ReusedModel:
    """A model that is built and drawn once and run many times, each time with weights of its own.

    Building and drawing a narrow model takes longer than running it, and a proof runs it at several weights.
    What a run kept for its backward pass stays as it was, for the next run has other parameters; their values
    are shared until somebody gives a parameter new ones.
    """

    model: nn.Module
    initial: tuple[tuple[dict[str, nn.Parameter | None], str, nn.Parameter], ...]
    """Where each of its weights belongs, and what it is at first."""

    @classmethod
    def of(cls, model: nn.Module) -> "ReusedModel":
        """Of a model with its initial weights, which must not be changed in place from now on."""
        named = (
            (module._parameters, name, own)
            for module in model.modules()
            for name, own in module.named_parameters(recurse=False)
        )
        return cls(model, tuple(named))

    def anew(self) -> nn.Module:
        """The model, in training mode, with its initial weights in new parameters."""
        for where, name, own in self.initial:
            where[name] = nn.Parameter(own.detach(), requires_grad=own.requires_grad)
        return self.model.train()
