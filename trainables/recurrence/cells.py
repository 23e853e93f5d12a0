"""Recursive cells that compose two states into one.

Source: Ray Chowdhury and Caragea, Modeling Hierarchical Structures with Continuous Recursive Neural Networks,
with their released code; the gated recursive cell is that of Shen et al., Ordered Memory.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from trainables.layers.dropout import KeyedDropout
from trainables.layers.linear import LayerNorm, Linear, XavierLinear
from trainables.layers.recomputing import Recomputable

Activation = Literal["gelu", "relu"]
Initial = Literal["uniform", "glorot"]


def gelu(*, tanh: bool) -> Callable[[Tensor], Tensor]:
    """Return the GELU, exact or approximated by a tanh; the two differ by less than 0.0005."""
    return partial(F.gelu, approximate="tanh" if tanh else "none")


def linear(inputs: int, outputs: int, initial: Initial, fans: int | None = None) -> Linear | XavierLinear:
    """Return a linear map with a uniform or a Glorot-uniform initial distribution.

    Args:
        inputs: Number of inputs.
        outputs: Number of outputs.
        initial: "uniform": weights and biases in +-1/sqrt(inputs); "glorot": biases nearly zero.
        fans: Sum of inputs and outputs used by the Glorot distribution, if it differs from the actual one.
    """
    if initial == "uniform":
        return Linear(inputs, outputs)
    gain = 1.0 if fans is None else ((inputs + outputs) / fans) ** 0.5
    return XavierLinear(inputs, outputs, gain=gain)


class RecursiveCell(Recomputable):
    """Base of recursive cells; the first `width` numbers of a state of width C are its hidden part."""

    dropout: KeyedDropout
    """Dropout inside `compose`."""

    def __init__(self, width: int, state_width: int) -> None:
        super().__init__()
        self.width = width
        self.state_width = state_width

    def begin(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "M C"]:
        """Return the states of leaves."""
        raise NotImplementedError

    def compose(
        self, left: Float[Tensor, "M C"], right: Float[Tensor, "M C"], positions: Int[Tensor, " M"]
    ) -> Float[Tensor, "M C"]:
        """Return the state composed from two states.

        Args:
            left: States of the left children, (pairs, state width).
            right: States of the right children, (pairs, state width).
            positions: Place of each right child in the full batch, for dropout.
        """
        raise NotImplementedError

    def hidden(self, state: Float[Tensor, "... C"]) -> Float[Tensor, "... D"]:
        """Return the hidden part of a state, which the rest of the model reads."""
        return state[..., : self.width]


class GatedRecursiveCell(RecursiveCell):
    """LN(f1 * left + f2 * right + i * p), with the gates and p from a feed-forward of both states.

    Leaves are LN(W x); with `shared_norm` their norm is that of the cell.
    """

    def __init__(
        self,
        width: int,
        inner: int,
        dropout: float,
        *,
        activation: Callable[[Tensor], Tensor],
        shared_norm: bool,
        initial: Initial,
    ) -> None:
        super().__init__(width, width)
        self.leaf = linear(width, width, initial)
        self.leaf_norm = None if shared_norm else LayerNorm(width)
        self.inner = linear(2 * width, inner, initial)
        self.outer = linear(inner, 4 * width, initial)
        self.norm = LayerNorm(width)
        self.dropout = KeyedDropout(dropout, inner)
        self.activation = activation

    def begin(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "M C"]:
        """Return LN(W x)."""
        norm = self.norm if self.leaf_norm is None else self.leaf_norm
        leaf_states: Tensor = norm(self.leaf(x))
        return leaf_states

    def compose(
        self, left: Float[Tensor, "M C"], right: Float[Tensor, "M C"], positions: Int[Tensor, " M"]
    ) -> Float[Tensor, "M C"]:
        """Return the normed gated sum of both states and the candidate."""
        hidden_layer = self.activation(self.inner(torch.cat((left, right), -1)))
        f1, f2, i, p = self.outer(self.dropout(hidden_layer, positions)).chunk(4, -1)
        parent: Tensor = self.norm(f1.sigmoid() * left + f2.sigmoid() * right + i.sigmoid() * p)
        return parent


class LstmCell(RecursiveCell):
    """Binary tree LSTM; a state is its hidden half, then its memory. Dropout is applied to logits."""

    def __init__(self, width: int, dropout: float, *, initial: Initial) -> None:
        super().__init__(width, 2 * width)
        self.leaf = linear(width, 2 * width, initial, fans=2 * width)
        self.outer = linear(2 * width, 5 * width, initial, fans=2 * width)
        self.dropout = KeyedDropout(dropout, 5 * width)

    def begin(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "M C"]:
        """Return sigmoid(o) * tanh(memory), and memory = tanh(W x)."""
        o, memory = self.leaf(x).chunk(2, -1)
        return self._state(o, memory.tanh())

    def compose(
        self, left: Float[Tensor, "M C"], right: Float[Tensor, "M C"], positions: Int[Tensor, " M"]
    ) -> Float[Tensor, "M C"]:
        """Return the state of the gated sum of both memories and the new candidate."""
        (h1, c1), (h2, c2) = left.chunk(2, -1), right.chunk(2, -1)
        gates = self.dropout(self.outer(torch.cat((h1, h2), -1)), positions)
        f1, f2, i, o, candidate = gates.chunk(5, -1)
        return self._state(o, f1.sigmoid() * c1 + f2.sigmoid() * c2 + i.sigmoid() * candidate.tanh())

    def _state(self, o: Tensor, memory: Tensor) -> Tensor:
        return torch.cat((o.sigmoid() * memory.tanh(), memory), -1)
