"""Linear maps and norms that know their own initial distribution, drawn from a stream per parameter."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Stream = Callable[[str], torch.Generator]
"""The random stream of a parameter, by its name within the module."""

TINY_BIAS_STD = 1e-6


class Initialised(nn.Module):
    """A module that draws the parameters it owns itself, each from its own stream."""

    def initialise(self, stream: Stream) -> None:
        """Fill every parameter of this module, those of children left out."""
        raise NotImplementedError


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
