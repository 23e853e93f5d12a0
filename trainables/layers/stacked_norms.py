"""Norms of all members of a stack (`layers.stacked`): one kernel each way, whatever the number of members.

PyTorch's layer norm has one weight for all vectors, and members have weights of their own. The same numbers
are a group norm with a group for each member, of vectors that lie beside each other: the norm of a token of
all members is that of one example with W D channels. It wants them member after member for each token, in
which layout states therefore stay (`layers.stacked.by_token`).

Legend: W members, M tokens, D width.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from trainables.layers.host import Function
from trainables.layers.stacked import for_all


@dataclass
class _Norm:
    """Where the weights and the biases of one norm are, and what its uses gave them as gradients."""

    first: int
    """Where the weights begin; the biases follow them."""
    size: int
    """W D."""
    gradients: list[Tensor] = field(default_factory=list)
    """Of weights and of biases, use by use."""


class StackedNorms:
    """The norms of a model, for one forward and backward pass of all members."""

    def __init__(self, model: nn.Module, weights: Mapping[str, Float[Tensor, "W ..."]]) -> None:
        """Of the layer norms in `model`, given the `weights` of all members by their qualified names."""
        self._norms: dict[nn.Module, _Norm] = {}
        given: list[Tensor] = []
        first = 0
        for name, module in model.named_modules():
            if isinstance(module, nn.LayerNorm):
                weight = weights[f"{name}.weight"]
                self._norms[module] = _Norm(first, weight.numel())
                given += weight, weights[f"{name}.bias"]
                first += 2 * weight.numel()
        self._whole: Tensor | None = None
        if given:
            self._whole = _Weights.run([*self._norms.values()], *given)

    def __call__(self, module: nn.LayerNorm, x: Float[Tensor, "*M D"]) -> Float[Tensor, "*M D"]:
        """The norm of `x`, as seen by each member."""

        def of_all(x: Float[Tensor, "W *M D"]) -> Float[Tensor, "W *M D"]:
            rows = x.reshape(x.shape[0], -1, x.shape[-1])
            found: Tensor = _Norms.run(rows, self._whole, self._norms[module], module.eps)
            return found.view(x.shape)

        return for_all(of_all, x)


class _Weights(Function):
    """Weights and biases of all norms in one tensor; their gradients wait for all uses."""

    @staticmethod
    def forward(ctx: Any, norms: list[_Norm], *given: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.norms, ctx.shapes = norms, [each.shape for each in given]
        whole = given[0].new_empty(sum(each.numel() for each in given))
        parts = torch.split(whole, [each.numel() for each in given])
        torch._foreach_copy_([part.view(each.shape) for part, each in zip(parts, given, strict=True)], given)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ARG004 uses have kept them
        found: dict[int, tuple[Tensor, ...]] = {}
        alike = defaultdict(list)
        for place, norm in enumerate(ctx.norms):
            alike[len(norm.gradients) // 2, norm.size].append(place)
        for (uses, size), places in alike.items():
            if not uses:
                continue
            given = [each for place in places for each in ctx.norms[place].gradients]
            if uses == 1:
                pairs = iter(given)
                found.update((place, (next(pairs), next(pairs))) for place in places)
                continue
            sums = torch.cat(given).view(len(places), uses, 2, size).sum(1)
            found.update(zip(places, (tuple(each) for each in sums.unbind()), strict=True))
        made = [each for place in range(len(ctx.norms)) for each in found.get(place, (None, None))]
        return None, *(
            None if each is None else each.view(shape) for each, shape in zip(made, ctx.shapes, strict=True)
        )


class _Norms(Function):
    """One use of a norm."""

    @staticmethod
    def forward(ctx: Any, x: Float[Tensor, "W M D"], whole: Tensor, norm: _Norm, eps: float) -> Tensor:
        rows = _rows(x)
        weight, bias = torch.split(whole[norm.first : norm.first + 2 * norm.size], norm.size)
        sizes = rows.shape[0], norm.size, 1, x.shape[0]
        made, mean, rstd = torch.native_group_norm(rows, weight, bias, *sizes, eps)
        ctx.save_for_backward(rows, mean, rstd, weight)
        ctx.norm, ctx.sizes = norm, sizes
        return _members(made, x.shape[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        back, *others = torch.ops.aten.native_group_norm_backward(
            _rows(grads[0]), *ctx.saved_tensors, *ctx.sizes, [True] * 3
        )
        ctx.norm.gradients += others
        return _members(back, ctx.sizes[3]), None, None, None


def _rows(x: Float[Tensor, "W M D"]) -> Float[Tensor, "M W_D"]:
    return x.transpose(0, 1).contiguous().flatten(1)


def _members(rows: Float[Tensor, "M W_D"], members: int) -> Float[Tensor, "W M D"]:
    return rows.view(rows.shape[0], members, -1).transpose(0, 1)
