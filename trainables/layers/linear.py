"""Linear maps, norms and vectors with their initial distributions, drawn from one stream per parameter."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Stream = Callable[[str], torch.Generator]
"""Returns the random stream of a parameter, given its name within the module."""

TINY_BIAS_STD = 1e-6


class Initialised(nn.Module):
    """A module that draws its own parameters, each from a separate stream."""

    def initialise(self, stream: Stream) -> None:
        """Draw all parameters of this module, but not the parameters of its children."""
        raise NotImplementedError


class _Linear(nn.Linear, Initialised):
    """A linear map that is not filled with values on the device `meta`."""

    def reset_parameters(self) -> None:
        """Reset as PyTorch does; do nothing on `meta`, where this would slow down building models."""
        if not self.weight.is_meta:
            super().reset_parameters()


class Linear(_Linear):
    """A linear map with PyTorch's default distribution: weights and bias uniform in +-1/sqrt(inputs)."""

    def initialise(self, stream: Stream) -> None:
        """Fill the weight, then the bias."""
        bound = self.in_features**-0.5
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=stream("weight"))
            if self.bias is not None:
                self.bias.uniform_(-bound, bound, generator=stream("bias"))


class XavierLinear(_Linear):
    """A linear map with Xavier-uniform weights and biases distributed as N(bias_mean, (1e-6)^2).

    If `bias_mean` is None, biases are uniform in +-1/sqrt(inputs), as if only the weights were reinitialised.
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
        """Fill the weight, then the bias."""
        bound = self.gain * (6 / (self.in_features + self.out_features)) ** 0.5
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=stream("weight"))
            if self.bias is not None and self.bias_mean is None:
                bound = self.in_features**-0.5
                self.bias.uniform_(-bound, bound, generator=stream("bias"))
            elif self.bias is not None:
                self.bias.normal_(self.bias_mean, TINY_BIAS_STD, generator=stream("bias"))


class ZeroLinear(_Linear):
    """A linear map with zero weights and no bias: its output is initially zero."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def initialise(self, stream: Stream) -> None:  # noqa: ARG002 nothing random here
        """Set all weights to zero."""
        nn.init.zeros_(self.weight)


class LayerNorm(nn.LayerNorm, Initialised):
    """A layer norm with weights one and biases zero; not filled with values on the device `meta`."""

    def initialise(self, stream: Stream) -> None:  # noqa: ARG002 nothing random here
        """Set weights to one and biases to zero."""
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset as PyTorch does; do nothing on `meta`, to save time."""
        if not (self.elementwise_affine and self.weight.is_meta):
            super().reset_parameters()

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 PyTorch's name
        """Return `input`, normalised over the last axis."""
        # Native function behind `torch.nn.functional.layer_norm`, without the check for overrides.
        return torch.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


def join_weights(*weights: Tensor) -> Tensor:
    """Concatenate weights (or biases) of several maps of the same inputs, in the precision of products.

    Autocast caches casts of parameters of a model, but not casts of tensors computed from them.
    """
    joint_weight = torch.cat(weights)
    return joint_weight.to(dtype_of_products(joint_weight))


def dtype_of_products(weight: Tensor) -> torch.dtype:
    """Return the precision of products with `weight`."""
    if torch.is_autocast_enabled(weight.device.type) and weight.dtype == torch.float32:
        return torch.get_autocast_dtype(weight.device.type)
    return weight.dtype


class Vector(Initialised):
    """One learned vector, or a table of vectors, normally distributed around zero."""

    def __init__(self, *shape: int, std: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape))
        self.std = std

    def initialise(self, stream: Stream) -> None:
        """Fill all vectors."""
        with torch.no_grad():
            self.weight.normal_(0, self.std, generator=stream("weight"))

    def forward(self) -> Tensor:
        """Return the vectors."""
        return self.weight


class Constant(Initialised):
    """Learned numbers that all start at `value`."""

    def __init__(self, *shape: int, value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape))
        self.value = value

    def initialise(self, stream: Stream) -> None:  # noqa: ARG002 nothing random here
        """Set all numbers to `value`."""
        nn.init.constant_(self.weight, self.value)

    def forward(self) -> Tensor:
        """Return the numbers."""
        return self.weight
