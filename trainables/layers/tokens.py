"""The active tokens of a batch, with what attention and dropout need of each: positions, reach, place."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainables.layers.batch_parts import rows_in_batch
from trainables.layers.head_rows import MOST_BY_HOST, Factor, spread, spread_parts
from trainables.layers.host import changed, uploaded
from trainables.layers.mask_draws import host_scattered, scattered
from trainables.layers.packing import InTwo, Packing, take
from trainables.layers.xpos import NoRotation, Rotation, rotations, selected

ROW_STRIDE = 1 << 16


@dataclass(frozen=True)
class KeysValues:
    """What queries attend to: rotated keys, and values, of whole rows."""

    keys: Float[Tensor, "L H E"]
    values: Float[Tensor, "L H E"]
    packing: Packing
    both: Float[Tensor, "L 2 H E"] | None = None
    """The same beside each other, where they were made so."""

    @classmethod
    def beside(cls, both: Float[Tensor, "L 2 H E"], packing: Packing) -> "KeysValues":
        """Of one tensor."""
        keys, values = both.unbind(1)
        return cls(keys, values, packing, both)

    @cached_property
    def padded(self) -> tuple[Float[Tensor, "B H K E"], Float[Tensor, "B H K E"]]:
        """Both as batched products read them, made once for all that attend to them."""
        if self.both is not None:
            keys, values = self.padded_both.unbind(0)
            return keys, values
        return spread(self.keys, self.packing), spread(self.values, self.packing)

    @cached_property
    def padded_both(self) -> Float[Tensor, "2 B H K E"]:
        """The same in one tensor, of what was made so."""
        assert self.both is not None
        return spread_parts(self.both, self.packing)

    def alone(self) -> "KeysValues":
        """The same, with nothing made of it yet."""
        return changed(self)

    def with_rows(self, where: Int[Tensor, " K"], others: "KeysValues") -> "KeysValues":
        """With `others` in place of some keys and values."""
        if self.both is not None and others.both is not None:
            return KeysValues.beside(self.both.index_copy(0, where, others.both), self.packing)
        keys = self.keys.index_copy(0, where, others.keys)
        return KeysValues(keys, self.values.index_copy(0, where, others.values), self.packing)

    def select_rows(
        self, rows: Int[Tensor, " R"], known: Int[np.ndarray, " R"] | None = None
    ) -> "KeysValues":
        """Only some of the rows, in their order; whole rows stay or leave, whatever their lengths.

        Where the host does not know them and lengths differ, it waits.
        """
        packing = self.packing
        if rows.shape[0] == packing.num_rows:
            return self
        if packing.dense:
            # Known from shapes alone: nothing waits for the device.
            kept = Packing.of_counts(np.full(rows.shape[0], packing.width), rows.device)

            def of_rows(x: Tensor) -> Tensor:
                return take(x.reshape(packing.num_rows, packing.width, *x.shape[1:]), rows).flatten(0, 1)

            if self.both is not None:
                return KeysValues.beside(of_rows(self.both), kept)
            return KeysValues(of_rows(self.keys), of_rows(self.values), kept)
        stays = np.zeros(packing.num_rows, dtype=bool)
        stays[rows.tolist() if known is None else known] = True
        tokens, _, packed = packing.select(np.repeat(stays, packing.host_counts))
        if self.both is not None:
            return KeysValues.beside(take(self.both, tokens), packed)
        return KeysValues(take(self.keys, tokens), take(self.values, tokens), packed)


@dataclass(frozen=True)
class Placed:
    """M packed vectors: their packing in rows, and their places in the full batch."""

    packing: Packing
    place: Int[Tensor, " M"]
    """A hash of row and position in the full batch; unchanged when other tokens leave the batch."""
    made: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False, kw_only=True)
    """What `once` has made."""

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` makes, once for all layers of a forward pass, whichever tokens they run on."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def alone(self) -> "Placed":
        """The same, with nothing that depends on weights made for it yet."""
        found = copy(self)
        vars(found)["made"] = {}
        return found

    @property
    def padded_place(self) -> Int[Tensor, "B T"]:
        """Places in the padded form; those of padding are of no use."""
        packing = self.packing
        found: Tensor = self._made_for(
            self.place, lambda: padded_rows(self.place, packing).view(-1, packing.width)
        )
        return found

    def _made_for(self, numbers: Tensor, make: Callable[[], Any]) -> Any:
        """What `make` makes of a number of each of the tokens and of how they are packed: once for all that
        share both."""
        # The numbers stay with what was made of them, so that no others get their identity.
        return self.packing.once(("made for", id(numbers)), lambda: (numbers, make()))[1]

    def select(self, tokens: Int[Tensor, " K"], rows: Int[Tensor, " R"], packing: Packing) -> "Placed":  # noqa: ARG002
        """Only `tokens`, which are all in `rows`, packed by `packing`."""
        return changed(self, packing=packing, place=self.place.index_select(0, tokens))

    def part(
        self,
        cut: InTwo,
        rows: tuple[Int[Tensor, " R"], Int[np.ndarray, " R"]],  # noqa: ARG002
        staying: Packing,
        going: Packing,
    ) -> "tuple[Placed, Placed]":
        """Both parts of a `cut` through the tokens, and how each is packed; those that stay are all in
        `rows`, which the host knows."""
        one, other = cut.of(self.place)
        return changed(self, packing=staying, place=one), changed(self, packing=going, place=other)


@dataclass(frozen=True)
class Tokens(Placed):
    """Packed tokens: how their queries and keys are rotated, and what they may attend to."""

    query_rotation: Rotation
    key_rotation: Rotation
    reach: Int[Tensor, " M"] | None = None
    """Causal: how many tokens of its row each may attend to, from the first up to itself; None: all of them.
    Attention to `recalled` is never causal."""
    recalled: KeysValues | None = None
    """Keys and values that the tokens of each row attend to beside their own row: memory of earlier chunks,
    or the encoded input."""
    recallers: Packing | None = None
    """Packing of the tokens in the rows of `recalled`, where several of their own rows share one."""
    position: Int[Tensor, " M"] | None = None
    """Where each is in its row of the full batch, where queries are not rotated by it."""

    @property
    def factors(self) -> tuple[Factor, Factor] | None:
        """Of queries and of keys, what they are multiplied by, and its conjugate; None if they are not."""
        if isinstance(self.query_rotation, NoRotation):
            return None
        rotation = self.query_rotation

        def made() -> tuple[Factor, Factor]:
            wide = rotation.table.index_select(1, padded_rows(rotation.where, self.packing))
            wide = wide.view(4, -1, 1, self.packing.width, wide.shape[-1])
            return wide[:2], wide[2:]

        found: tuple[Factor, Factor] = self._made_for(rotation.where, made)
        return found

    def alone(self) -> "Tokens":
        """The same, with nothing that depends on weights made for it, or for `recalled`, yet."""
        # What depends on places alone is made here, for all layers: graphs keep it.
        _ = self.factors, self.padded_place
        found = copy(self)
        vars(found)["made"] = {}
        if self.recalled is not None:
            vars(found)["recalled"] = self.recalled.alone()
        return found

    @property
    def recalling(self) -> Placed:
        """The tokens as queries to `recalled`."""
        return self if self.recallers is None else Placed(self.recallers, self.place)

    @classmethod
    def of(cls, packing: Packing, head_width: int, dtype: torch.dtype, *, causal: bool = False) -> "Tokens":
        """All tokens of a full batch, positions counted from 0 in each row."""
        place = packed_places(packing)
        query, key = rotations(packing.column, packing.width, head_width, dtype)
        return cls(packing, place, query, key, packing.column + 1 if causal else None)

    @classmethod
    def unrotated(cls, packing: Packing, dtype: torch.dtype, *, causal: bool = False) -> "Tokens":
        """All tokens of a full batch, of a model without rotary positions."""
        rotation = NoRotation.of(packing.column, dtype)
        reach = packing.column + 1 if causal else None
        return cls(packing, packed_places(packing), rotation, rotation, reach, position=packing.column)

    def split(self, packings: Sequence[Packing]) -> "list[Tokens]":
        """Those of each of `packings`, which follow one another; no other rows are attended to."""
        sizes = [packing.row.shape[0] for packing in packings]

        def parts(x: Tensor) -> Sequence[Tensor]:
            return x.split_with_sizes(sizes)

        def parts_if_any(x: Tensor | None) -> Sequence[Tensor | None]:
            return [None] * len(sizes) if x is None else parts(x)

        columns = zip(
            packings,
            parts(self.place),
            parts(self.query_rotation.where),
            parts_if_any(self.reach),
            parts_if_any(self.position),
            strict=True,
        )
        return [self.some(*each) for each in columns]

    def some(
        self,
        packing: Packing,
        place: Int[Tensor, " K"],
        where: Int[Tensor, " K"],
        reach: Int[Tensor, " K"] | None,
        position: Int[Tensor, " K"] | None,
    ) -> "Tokens":
        """Some tokens, of which all that differs from token to token is given; they recall the same."""
        return changed(
            self,
            packing=packing,
            place=place,
            query_rotation=changed(self.query_rotation, where=where),
            key_rotation=changed(self.key_rotation, where=where),
            reach=reach,
            position=position,
        )

    def select(self, tokens: Int[Tensor, " K"], rows: Int[Tensor, " R"], packing: Packing) -> "Tokens":
        """Only `tokens`, which are all in `rows`, packed by `packing`."""
        query, key = selected((self.query_rotation, self.key_rotation), tokens)
        return changed(
            self,
            packing=packing,
            place=self.place.index_select(0, tokens),
            query_rotation=query,
            key_rotation=key,
            reach=None if self.reach is None else self.reach.index_select(0, tokens),
            recalled=None if self.recalled is None else self.recalled.select_rows(rows),
            position=None if self.position is None else self.position.index_select(0, tokens),
        )

    def part(
        self,
        cut: InTwo,
        rows: tuple[Int[Tensor, " R"], Int[np.ndarray, " R"]],
        staying: Packing,
        going: Packing,
    ) -> "tuple[Tokens, Tokens]":
        """The same; those that leave attend to no other rows any more."""

        def parts(x: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
            return (None, None) if x is None else cut.of(x)

        columns = zip(
            (staying, going),
            cut.of(self.place),
            cut.of(self.query_rotation.where),
            parts(self.reach),
            parts(self.position),
            strict=True,
        )
        one, other = (self.some(*each) for each in columns)
        recalled = None if self.recalled is None else self.recalled.select_rows(*rows)
        return changed(one, recalled=recalled), changed(other, recalled=None)


def padded_rows(x: Int[Tensor, " M"], packing: Packing) -> Int[Tensor, " BT"]:
    """A number of each token at its place in the padded form, row by row; any in padding."""
    return x if packing.dense else x.index_select(0, packing.padded_index.flatten())


def packed_places(packing: Packing, rows: Int[Tensor, " B"] | None = None) -> Int[Tensor, " M"]:
    """Place of every packed token of a full batch, or of only some `rows` of one."""
    if rows is None and packing.by_host and packing.row.shape[0] <= MOST_BY_HOST:
        counts = packing.host_counts
        here, starts = np.repeat(np.arange(counts.shape[0]), counts), np.cumsum(counts) - counts
        number = rows_in_batch(here) * ROW_STRIDE + np.arange(here.shape[0]) - starts[here]
        return uploaded(host_scattered(number), packing.row.device)
    there = packing.row if rows is None else rows.index_select(0, packing.row)
    return scattered(rows_in_batch(there) * ROW_STRIDE + packing.column)


def batch_places(padded: Int[Tensor, "N S"]) -> Int[Tensor, "N S"]:
    """Place of every entry of a padded batch, before START and END are added."""
    number, width = padded.shape
    if number * width <= MOST_BY_HOST:
        rows = rows_in_batch(np.arange(number))[:, None]
        return uploaded(host_scattered(rows * ROW_STRIDE + np.arange(width)), padded.device)
    row, column = (torch.arange(size, device=padded.device) for size in padded.shape)
    return scattered(rows_in_batch(row)[:, None] * ROW_STRIDE + column)
