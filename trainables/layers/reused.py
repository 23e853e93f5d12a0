"""Weights that one pass uses again and again: gradients of each use are added by one kernel for all of them.

Without it PyTorch adds the gradient of every weight by a kernel of its own for every use but one. Here each
use sees aliases of the weights, whose gradients arrive together; the order of the sums is the same.
"""

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from trainables.layers.functions import Function
from trainables.layers.stacked import for_all, stacked
from trainables.layers.walking import modules_of


def learned(weight: Tensor) -> bool:
    """Whether a backward pass gives it a gradient; inside `vmap` tensors do not say, and all that are asked
    for here have one."""
    return weight.requires_grad or stacked()


class _Totals:
    """Sums of gradients over the uses so far."""

    def __init__(self) -> None:
        self._sums: dict[int, Tensor] = {}
        self._own: set[int] = set()
        """Whose sums no other has: what autograd hands over may be."""

    def add(self, grads: tuple[Tensor | None, ...]) -> None:
        """Those of one more use."""
        found = {place: grad for place, grad in enumerate(grads) if grad is not None}
        again = found.keys() & self._sums.keys()
        if own := sorted(again & self._own):
            torch._foreach_add_([self._sums[each] for each in own], [found[each] for each in own])
        if others := sorted(again - self._own):
            made = torch._foreach_add([self._sums[each] for each in others], [found[each] for each in others])
            self._sums.update(zip(others, made, strict=True))
            self._own.update(others)
        self._sums.update((place, found[place]) for place in found.keys() - again)

    def taken(self, count: int) -> tuple[Tensor | None, ...]:
        """All of them; the next backward pass begins anew."""
        sums = tuple(self._sums.get(place) for place in range(count))
        self._sums.clear()
        self._own.clear()
        return sums


class _Aliases(Function):
    """The weights themselves, as other tensors."""

    @staticmethod
    def forward(ctx: Any, totals: _Totals, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.totals = totals
        ctx.set_materialize_grads(False)
        # Of what a function returns as it was given autograd makes a view.
        return weights


class _Collect(_Aliases):
    """The weights themselves; their gradients are the totals of all uses."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, *ctx.totals.taken(len(grads)))


class _Use(_Aliases):
    """Aliases of the weights for one use, whose gradients go to the totals."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[None, ...]:
        ctx.totals.add(grads)
        return (None,) * (1 + len(grads))


class _Sources:
    """Some tensors that are used again and again."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._totals = _Totals()
        self._tensors = self._through(_Collect, tensors)

    def aliases(self) -> tuple[Tensor, ...]:
        """For one use."""
        return self._through(_Use, self._tensors)

    def _through(self, step: type[Function], tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if tensors and stacked():
            return for_all(lambda *given: self._run(step, given), *tensors)
        return self._run(step, tensors)

    def _run(self, step: type[Function], tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        made: tuple[Tensor, ...] = step.run(self._totals, *tensors)
        return made


@dataclass
class _Held:
    """What had been made of the weights before a use, and tells of it as long as no more is made."""

    made: MutableMapping[Any, Any]
    size: int
    keys: list[Any]


class Reused:
    """All weights of one part of a model, and what was made of them, for the time of a pass."""

    def __init__(self, part: nn.Module) -> None:
        modules = modules_of(part)
        self._modules = set(map(id, modules))
        self._places: list[tuple[dict[str, Any], str]] = []
        self._weights: list[nn.Parameter] = []
        self._cast: list[Tensor] = []
        """What stands for each weight in products."""
        for module in modules:
            for name, weight in module._parameters.items():
                if weight is None or not learned(weight) or (cast := _cast(module, weight)) is None:
                    continue
                self._places.append((module._parameters, name))
                self._weights.append(weight)
                self._cast.append(cast)
        self._first: tuple[dict[Any, Any], _Sources] | None = None
        """What had been made of the weights before the first use; that and the weights."""
        self._later: dict[Any, _Sources] = {}
        """What was made in a use."""
        self._held: _Held | None = None

    def begin(self, made: MutableMapping[Any, Any]) -> dict[Any, Any]:
        """Until `end`, modules have aliases in the place of their weights, and so has `made` of what it holds
        of them: what was made before the first use from that on, other things from the next.

        What it holds now, which `end` is to be given.
        """
        before = {key: made[key] for key in self._keys(made)}
        if self._first is None:
            sources = [*self._cast, *chain(*map(_tensors, before.values()))]
            self._first = before, _Sources(sources)
        first, together = self._first
        aliases, count = together.aliases(), len(self._places)
        for key, value in first.items():
            end = count + (len(value) if isinstance(value, tuple) else 1)
            if key in before:
                made[key] = aliases[count:end] if isinstance(value, tuple) else aliases[count]
            count = end
        if len(before) > len(first):
            self._begin_later(before, made)
        for (parameters, name), alias in zip(self._places, aliases, strict=False):
            parameters[name] = alias
        return before

    def end(self, made: MutableMapping[Any, Any], before: dict[Any, Any]) -> None:
        """Modules have their weights again."""
        made.update(before)
        for (parameters, name), weight in zip(self._places, self._weights, strict=True):
            parameters[name] = weight

    def _begin_later(self, before: dict[Any, Any], made: MutableMapping[Any, Any]) -> None:
        assert self._first is not None
        for key in before.keys() - self._first[0].keys():
            value = before[key]
            if key not in self._later:
                self._later[key] = _Sources(_tensors(value))
            aliases = self._later[key].aliases()
            made[key] = aliases if isinstance(value, tuple) else aliases[0]

    def _keys(self, made: MutableMapping[Any, Any]) -> list[Any]:
        """What `made` holds of the weights. It only grows."""
        held = self._held
        if held is None or held.made is not made or held.size != len(made):
            keys = [key for key, each in made.items() if self._holds(key, each)]
            held = self._held = _Held(made, len(made), keys)
        return held.keys

    def _holds(self, key: Any, value: Any) -> bool:
        if not (isinstance(key, tuple) and id(key[0]) in self._modules):
            return False
        return all(isinstance(each, Tensor) and learned(each) for each in _tensors(value))


def _tensors(value: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


def _cast(module: nn.Module, weight: Tensor) -> Tensor | None:
    """A weight in the precision of products; None if that is not known.

    Autocast keeps what it casts for the parameters of a model, and not for aliases of them. Those of linear
    maps go into products alone, joined with others or not.
    """
    if not torch.is_autocast_enabled(weight.device.type):
        return weight
    if isinstance(module, nn.Linear):
        return weight.to(torch.get_autocast_dtype(weight.device.type))
    return weight if isinstance(module, nn.LayerNorm) else None
