"""Weights that one pass uses again and again: gradients of each use are added by one kernel for all of them.

Without it PyTorch adds the gradient of every weight by a kernel of its own for every use but one. Here each
use sees aliases of the weights, whose gradients arrive together; the order of the sums is the same.
"""

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainables.layers.host import Function, modules_of


class _Totals:
    """Sums of gradients over the uses so far."""

    def __init__(self) -> None:
        self._sums: dict[int, Tensor] = {}
        self._own: set[int] = set()
        """Whose sums no other has: what autograd hands over may be."""

    def add(self, places: Sequence[int], grads: tuple[Tensor | None, ...]) -> None:
        """Those of one more use, which reads the weights at these places."""
        found = {place: grad for place, grad in zip(places, grads, strict=True) if grad is not None}
        sums, own = self._sums, self._own
        if own.issuperset(found):
            if found:
                torch._foreach_add_([sums[each] for each in found], [*found.values()])
            return
        if old := [each for each in found if each in own]:
            torch._foreach_add_([sums[each] for each in old], [found[each] for each in old])
        if others := [each for each in found if each in sums and each not in own]:
            made = torch._foreach_add([sums[each] for each in others], [found[each] for each in others])
            found.update(zip(others, made, strict=True))
            own.update(others)
        sums.update({each: grad for each, grad in found.items() if each not in old})

    def taken(self, count: int) -> tuple[Tensor | None, ...]:
        """All of them; the next backward pass begins anew."""
        sums = tuple([self._sums.get(place) for place in range(count)])
        self._sums.clear()
        self._own.clear()
        return sums


class _Collect(Function):
    """The weights themselves; their gradients are the totals of all uses."""

    @staticmethod
    def forward(ctx: Any, totals: _Totals, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.totals = totals
        ctx.set_materialize_grads(False)
        # Of what a function returns as it was given autograd makes a view.
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, *ctx.totals.taken(len(grads)))


class _Use(Function):
    """Aliases of the weights for one use, whose gradients go to the totals."""

    @staticmethod
    def forward(ctx: Any, totals: _Totals, places: Sequence[int], *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.totals, ctx.places = totals, places
        ctx.set_materialize_grads(False)
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[None, ...]:
        ctx.totals.add(ctx.places, grads)
        return (None,) * (2 + len(grads))


class _Sources:
    """Some tensors that are used again and again."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._totals = _Totals()
        self.tensors: tuple[Tensor, ...] = _Collect.run(self._totals, *tensors)

    def aliases(self, places: Sequence[int], tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Of the `tensors` at these places, for one use."""
        made: tuple[Tensor, ...] = _Use.run(self._totals, places, *tensors)
        return made

    def all_aliases(self) -> tuple[Tensor, ...]:
        """Of all of them, for one use."""
        return self.aliases(range(len(self.tensors)), self.tensors)


@dataclass
class _Held:
    """What had been made of the weights before a use, and tells of it as long as no more is made."""

    made: MutableMapping[Any, Any]
    size: int
    keys: list[Any]


class _Weight(NamedTuple):
    """A weight, where its module has it, and what stands for it in products."""

    owner: nn.Module
    parameters: dict[str, Any]
    name: str
    weight: nn.Parameter
    cast: Tensor


class _Reading(NamedTuple):
    """What some uses read."""

    modules: set[int] | None
    """Whose weights; None: any."""
    weights: list[_Weight]
    places: list[int]
    """Of these weights among all, and of what was made of them."""
    tensors: list[Tensor]
    made: list[tuple[Any, int, int | None]]
    """What was made of weights before the first use: its key, where its aliases begin, and how many there are
    if it is no tensor."""


Begun = tuple[_Reading, dict[Any, Any]]


class Reused:
    """All weights of one part of a model, and what was made of them, for the time of a pass."""

    def __init__(
        self, part: nn.Module, read_by: Callable[[Callable[..., Any]], Sequence[nn.Module]] | None = None
    ) -> None:
        """`read_by` tells modules of which a use reads the weights; none, if it may read those of all."""
        modules = modules_of(part)
        self._read_by = read_by
        self._modules = set(map(id, modules))
        found = [
            (module, name, weight)
            for module in modules
            if module._parameters
            for name, weight in module._parameters.items()
            if weight is not None and weight.requires_grad
        ]
        self.learns = bool(found)
        """Whether a backward pass gives any weight a gradient."""
        cast = any(map(torch.is_autocast_enabled, {weight.device.type for *_, weight in found}))
        self._weights = [
            _Weight(module, module._parameters, name, weight, seen)
            for module, name, weight in found
            if (seen := _cast(module, weight) if cast else weight) is not None
        ]
        self._first: dict[Any, Any] = {}
        """What had been made of the weights before the first use."""
        self._together: _Sources | None = None
        """The weights and that."""
        self._later: dict[Any, _Sources] = {}
        """What was made in a use."""
        self._held: _Held | None = None
        self._readings: dict[Any, _Reading] = {}

    def begin(self, made: MutableMapping[Any, Any], run: Callable[..., Any]) -> Begun:
        """While a use runs `run`, until `end`, which is to be given the result: modules have aliases in the
        place of their weights, and so has `made` of what it holds of them, of what was made before the first
        use from that on, of other things from the next."""
        keys = self._keys(made)
        if self._together is None:
            self._first = {key: made[key] for key in keys}
            tensors = [each for value in self._first.values() for each in _tensors(value)]
            self._together = _Sources([*(each.cast for each in self._weights), *tensors])
        kind = getattr(run, "__func__", None)
        reading = self._readings.get(kind)
        if reading is None:
            modules = () if self._read_by is None else self._read_by(run)
            reading = self._readings[kind] = self._reading(self._together.tensors, modules)
        aliases, before = self._together.aliases(reading.places, reading.tensors), dict[Any, Any]()
        for key, at, count in reading.made:
            if key in made:
                before[key] = made[key]
                made[key] = aliases[at] if count is None else aliases[at : at + count]
        if len(keys) > len(before):
            self._begin_later(keys, reading, made, before)
        for (_, parameters, own, _, _), alias in zip(reading.weights, aliases, strict=False):
            parameters[own] = alias
        return reading, before

    def end(self, made: MutableMapping[Any, Any], begun: Begun) -> None:
        """Modules have their weights again."""
        reading, before = begun
        made.update(before)
        for _, parameters, name, weight, _ in reading.weights:
            parameters[name] = weight

    def _reading(self, tensors: Sequence[Tensor], modules: Sequence[nn.Module]) -> _Reading:
        only = {id(each) for each in modules} or None
        places = [place for place, each in enumerate(self._weights) if only is None or id(each.owner) in only]
        weights, made, begin = [self._weights[each] for each in places], [], len(self._weights)
        for key, value in self._first.items():
            count = len(_tensors(value))
            if only is None or id(key[0]) in only:
                made.append((key, len(places), count if isinstance(value, tuple) else None))
                places += range(begin, begin + count)
            begin += count
        return _Reading(only, weights, places, [tensors[each] for each in places], made)

    def _begin_later(
        self,
        keys: Sequence[Any],
        reading: _Reading,
        made: MutableMapping[Any, Any],
        before: dict[Any, Any],
    ) -> None:
        for key in keys:
            if key in self._first or (reading.modules is not None and id(key[0]) not in reading.modules):
                continue
            value = before[key] = made[key]
            if key not in self._later:
                self._later[key] = _Sources(_tensors(value))
            aliases = self._later[key].all_aliases()
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
        return all(isinstance(each, Tensor) and each.requires_grad for each in _tensors(value))


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
