"""Linear maps and norms that know their own initial distribution, drawn from a stream per parameter."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from trainables.layers.host import Function

Stream = Callable[[str], torch.Generator]
"""The random stream of a parameter, by its name within the module."""

TINY_BIAS_STD = 1e-6


class Initialised(nn.Module):
    """A module that draws the parameters it owns itself, each from its own stream."""

    def initialise(self, stream: Stream) -> None:
        """Fill every parameter of this module, those of children left out."""
        raise NotImplementedError


class _Addcmul(Function):
    """`torch.addcmul`, of which PyTorch's own gradient takes each factor times one before it uses it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, one: Tensor, other: Tensor) -> Tensor:
        _, of_one, of_other = ctx.needs_input_grad
        ctx.save_for_backward(one if of_other else None, other if of_one else None)
        ctx.alike = [(each.dtype, each.shape) for each in (x, one, other)]
        return torch.addcmul(x, one, other)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (one, other), alike = grads, ctx.saved_tensors, ctx.alike
        return (
            _alike(grad, *alike[0]) if ctx.needs_input_grad[0] else None,
            None if other is None else _alike(grad * other, *alike[1]),
            None if one is None else _alike(grad * one, *alike[2]),
        )


def _alike(grad: Tensor, dtype: torch.dtype, shape: torch.Size) -> Tensor:
    if grad.shape != shape:
        grad = grad.sum_to_size(shape)
    return grad if grad.dtype == dtype else grad.to(dtype)


def addcmul(x: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """x + one * other."""
    made: Tensor = _Addcmul.run(x, one, other)
    return made


class _Linear(nn.Linear, Initialised):
    """A linear map without values on the device `meta`."""

    def reset_parameters(self) -> None:
        """As PyTorch; nothing on `meta`, where it would take most of the time of building a model."""
        if not self.weight.is_meta:
            super().reset_parameters()


class Linear(_Linear):
    """PyTorch's own distribution: weights and bias even in +-1/sqrt(inputs)."""

    def initialise(self, stream: Stream) -> None:
        """Weight, then bias."""
        bound = self.in_features**-0.5
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=stream("weight"))
            if self.bias is not None:
                self.bias.uniform_(-bound, bound, generator=stream("bias"))


class XavierLinear(_Linear):
    """Xavier-uniform weights; biases all but `bias_mean`, N(bias_mean, (1e-6)^2).

    Without a `bias_mean` biases are even in +-1/sqrt(inputs), as where only weights are initialised anew.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        bias: bool = True,
        gain: float = 1.0,
        bias_mean: float | None = 0.0,
    ) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.gain = gain
        self.bias_mean = bias_mean

    def initialise(self, stream: Stream) -> None:
        """Weight, then bias."""
        bound = self.gain * (6 / (self.in_features + self.out_features)) ** 0.5
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=stream("weight"))
            if self.bias is not None and self.bias_mean is None:
                bound = self.in_features**-0.5
                self.bias.uniform_(-bound, bound, generator=stream("bias"))
            elif self.bias is not None:
                self.bias.normal_(self.bias_mean, TINY_BIAS_STD, generator=stream("bias"))


class ZeroLinear(_Linear):
    """Weights all zero, no bias: the output is zero at first."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def initialise(self, stream: Stream) -> None:  # noqa: ARG002 nothing random here
        """Draws nothing."""
        nn.init.zeros_(self.weight)


class LayerNorm(nn.LayerNorm, Initialised):
    """Weights one, biases zero; without values on the device `meta`."""

    def initialise(self, stream: Stream) -> None:  # noqa: ARG002 nothing random here
        """Draws nothing."""
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As PyTorch; nothing on `meta`, for the time that it would take there."""
        if not (self.elementwise_affine and self.weight.is_meta):
            super().reset_parameters()

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 PyTorch's name
        """The norm over the last axis."""
        # Native function behind `torch.nn.functional.layer_norm`, without the check for overrides.
        return torch.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


def joined(*weights: Tensor) -> Tensor:
    """Weights or biases of several maps of the same inputs as those of one, in the precision of products.

    Autocast keeps what it casts for the parameters of a model, not for what is made of them.
    """
    whole = torch.cat(weights)
    return whole.to(dtype_of_products(whole))


def dtype_of_products(weight: Tensor) -> torch.dtype:
    """The precision of products with `weight`."""
    if torch.is_autocast_enabled(weight.device.type) and weight.dtype == torch.float32:
        return torch.get_autocast_dtype(weight.device.type)
    return weight.dtype


class _JoinedSets(Function):
    """Weights put together set by set. Each set has memory of its own."""

    @staticmethod
    def forward(ctx: Any, counts: Sequence[int], *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        given = iter(weights)
        sets = [[next(given) for _ in range(count)] for count in counts]
        ctx.sizes = [[each.shape[0] for each in alike] for alike in sets]
        ctx.dtype = weights[0].dtype
        made = [
            alike[0].new_empty(
                (sum(sizes), *alike[0].shape[1:]),
                dtype=dtype_of_products(alike[0]),
            )
            for alike, sizes in zip(sets, ctx.sizes, strict=True)
        ]
        parts = [whole.split_with_sizes(sizes) for whole, sizes in zip(made, ctx.sizes, strict=True)]
        torch._foreach_copy_([*chain(*parts)], weights)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        parts = (
            (None,) * len(sizes) if grad is None else grad.to(ctx.dtype).split_with_sizes(sizes)
            for grad, sizes in zip(grads, ctx.sizes, strict=True)
        )
        return None, *chain(*parts)


def joined_sets(sets: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
    """What `joined` makes of each of several sets of weights of one precision, in one kernel for all."""
    made: tuple[Tensor, ...] = _JoinedSets.run([len(each) for each in sets], *chain(*sets))
    return made


class Vector(Initialised):
    """One learned vector, or a table of them, normal around zero."""

    def __init__(self, *shape: int, std: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape))
        self.std = std

    def initialise(self, stream: Stream) -> None:
        """All of them at once."""
        with torch.no_grad():
            self.weight.normal_(0, self.std, generator=stream("weight"))

    def forward(self) -> Tensor:
        """The vectors themselves."""
        return self.weight


class Constant(Initialised):
    """Learned numbers that all start at `value`."""

    def __init__(self, *shape: int, value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape))
        self.value = value

    def initialise(self, stream: Stream) -> None:  # noqa: ARG002 nothing random here
        """Draws nothing."""
        nn.init.constant_(self.weight, self.value)

    def forward(self) -> Tensor:
        """The numbers themselves."""
        return self.weight
