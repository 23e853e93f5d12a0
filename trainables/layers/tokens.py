"""Describe the active tokens of a batch: positions, attention range, and places for dropout masks."""

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
from trainables.layers.head_rows import MAX_HOST_INDICES, Factor, spread, spread_parts
from trainables.layers.host import replace_fields, upload
from trainables.layers.mask_draws import hash_numbers, hash_on_host
from trainables.layers.packing import Packing, SplitInTwo, take
from trainables.layers.xpos import NoRotation, Rotation, rotations, select_rotations

ROW_STRIDE = 1 << 16


@dataclass(frozen=True)
class KeysValues:
    """Rotated keys and values of full rows, which queries attend to."""

    keys: Float[Tensor, "L H E"]
    values: Float[Tensor, "L H E"]
    packing: Packing
    both: Float[Tensor, "L 2 H E"] | None = None
    """Keys and values in one tensor, (tokens, 2, heads, head width), if they were computed together."""

    @classmethod
    def from_pair(cls, pairs: Float[Tensor, "L 2 H E"], packing: Packing) -> "KeysValues":
        """Build from one tensor that holds keys and values side by side."""
        keys, values = pairs.unbind(1)
        return cls(keys, values, packing, pairs)

    @cached_property
    def padded(self) -> tuple[Float[Tensor, "B H K E"], Float[Tensor, "B H K E"]]:
        """Padded keys and padded values for batched products, built once for all queries."""
        if self.both is not None:
            keys, values = self.padded_both.unbind(0)
            return keys, values
        return spread(self.keys, self.packing), spread(self.values, self.packing)

    @cached_property
    def padded_both(self) -> Float[Tensor, "2 B H K E"]:
        """Padded keys and values in one tensor; requires `both`."""
        assert self.both is not None
        return spread_parts(self.both, self.packing)

    def alone(self) -> "KeysValues":
        """Return a copy with an empty cache."""
        return replace_fields(self)

    def with_rows(self, indices: Int[Tensor, " K"], replacements: "KeysValues") -> "KeysValues":
        """Return a copy in which the entries at `indices` are replaced by `replacements`."""
        if self.both is not None and replacements.both is not None:
            return KeysValues.from_pair(self.both.index_copy(0, indices, replacements.both), self.packing)
        keys = self.keys.index_copy(0, indices, replacements.keys)
        return KeysValues(keys, self.values.index_copy(0, indices, replacements.values), self.packing)

    def select_rows(
        self, rows: Int[Tensor, " R"], host_rows: Int[np.ndarray, " R"] | None = None
    ) -> "KeysValues":
        """Return the keys and values of some rows, in their order.

        Each selected row is kept with all its tokens. If rows have different lengths and `host_rows` is None,
        the host waits for the device.

        Args:
            rows: Indices of the selected rows, on the device.
            host_rows: The same indices on the host, if available.
        """
        packing = self.packing
        if rows.shape[0] == packing.num_rows:
            return self
        if packing.dense:
            # The shapes alone are sufficient here, so the host does not wait for the device.
            new_packing = Packing.of_counts(np.full(rows.shape[0], packing.width), rows.device)

            def of_rows(x: Tensor) -> Tensor:
                return take(x.reshape(packing.num_rows, packing.width, *x.shape[1:]), rows).flatten(0, 1)

            if self.both is not None:
                return KeysValues.from_pair(of_rows(self.both), new_packing)
            return KeysValues(of_rows(self.keys), of_rows(self.values), new_packing)
        is_staying = np.zeros(packing.num_rows, dtype=bool)
        is_staying[rows.tolist() if host_rows is None else host_rows] = True
        tokens, _, new_packing = packing.select(np.repeat(is_staying, packing.host_counts))
        if self.both is not None:
            return KeysValues.from_pair(take(self.both, tokens), new_packing)
        return KeysValues(take(self.keys, tokens), take(self.values, tokens), new_packing)


@dataclass(frozen=True)
class Placed:
    """M packed vectors with their packing in rows and their places in the full batch."""

    packing: Packing
    place: Int[Tensor, " M"]
    """Hash of row and position in the full batch. It does not change when other tokens are removed."""
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False, kw_only=True)
    """Values cached by `once`."""

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the result of `make()`, cached under `key` for all layers of a forward pass."""
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]

    def alone(self) -> "Placed":
        """Return a copy without cached values that depend on weights."""
        result = copy(self)
        vars(result)["cache"] = {}
        return result

    @property
    def padded_place(self) -> Int[Tensor, "B T"]:
        """Places in the padded form; entries at padding are undefined."""
        packing = self.packing
        places: Tensor = self._once_for(
            self.place, lambda: padded_rows(self.place, packing).view(-1, packing.width)
        )
        return places

    def _once_for(self, numbers: Tensor, make: Callable[[], Any]) -> Any:
        """Return the result of `make()`, cached for all objects that share `numbers` and the packing.

        `make` computes the value from one number per token and from the packing.
        """
        # The cache keeps a reference to `numbers`, so that no other tensor can have the same `id`.
        return self.packing.once(("made for", id(numbers)), lambda: (numbers, make()))[1]

    def select(self, tokens: Int[Tensor, " K"], rows: Int[Tensor, " R"], packing: Packing) -> "Placed":  # noqa: ARG002
        """Return only `tokens`, all of which are in `rows`, packed by `packing`."""
        return replace_fields(self, packing=packing, place=self.place.index_select(0, tokens))

    def part(
        self,
        split: SplitInTwo,
        rows: tuple[Int[Tensor, " R"], Int[np.ndarray, " R"]],  # noqa: ARG002
        active: Packing,
        halted_packing: Packing,
    ) -> "tuple[Placed, Placed]":
        """Split the tokens in two.

        Args:
            split: Assignment of tokens to the two parts.
            rows: Rows that contain all remaining tokens, as indices on the device and on the host.
            active: Packing of the remaining tokens.
            halted_packing: Packing of the removed tokens.

        Returns:
            The remaining and the removed tokens.
        """
        first, second = split.of(self.place)
        return replace_fields(self, packing=active, place=first), replace_fields(
            self, packing=halted_packing, place=second
        )


@dataclass(frozen=True)
class Tokens(Placed):
    """Packed tokens with the rotations of their queries and keys, and the keys that they may attend to."""

    query_rotation: Rotation
    key_rotation: Rotation
    reach: Int[Tensor, " M"] | None = None
    """In causal attention, the number of tokens of its row that each token may attend to: all up to itself.
    None: all tokens of the row. Attention to `cross_kv` is never causal."""
    cross_kv: KeysValues | None = None
    """Keys and values that the tokens of each row attend to in addition to their own row: the memory of
    earlier chunks, or the encoded input."""
    cross_queries: Packing | None = None
    """Packing of the tokens in the rows of `cross_kv`, if several rows of tokens share one of these rows."""
    position: Int[Tensor, " M"] | None = None
    """Position of each token in its row of the full batch, if queries are not rotated by it."""

    @property
    def factors(self) -> tuple[Factor, Factor] | None:
        """Padded rotation factors of queries and keys, and their conjugates; None without rotation."""
        if isinstance(self.query_rotation, NoRotation):
            return None
        rotation = self.query_rotation

        def build() -> tuple[Factor, Factor]:
            wide = rotation.table.index_select(1, padded_rows(rotation.where, self.packing))
            wide = wide.view(4, -1, 1, self.packing.width, wide.shape[-1])
            return wide[:2], wide[2:]

        factors: tuple[Factor, Factor] = self._once_for(rotation.where, build)
        return factors

    def alone(self) -> "Tokens":
        """Return a copy without cached values that depend on weights, also in `cross_kv`."""
        # Values that depend only on places are computed here for all layers, because captured graphs keep
        # them.
        _ = self.factors, self.padded_place
        result = copy(self)
        vars(result)["cache"] = {}
        if self.cross_kv is not None:
            vars(result)["cross_kv"] = self.cross_kv.alone()
        return result

    @property
    def cross_placed(self) -> Placed:
        """The tokens as queries for attention to `cross_kv`."""
        return self if self.cross_queries is None else Placed(self.cross_queries, self.place)

    @classmethod
    def of(cls, packing: Packing, head_width: int, dtype: torch.dtype, *, causal: bool = False) -> "Tokens":
        """Build all tokens of a full batch, with positions counted from 0 in each row."""
        place = packed_places(packing)
        query, key = rotations(packing.column, packing.width, head_width, dtype)
        return cls(packing, place, query, key, packing.column + 1 if causal else None)

    @classmethod
    def unrotated(cls, packing: Packing, dtype: torch.dtype, *, causal: bool = False) -> "Tokens":
        """Build all tokens of a full batch for a model without rotary positions."""
        rotation = NoRotation.of(packing.column, dtype)
        reach = packing.column + 1 if causal else None
        return cls(packing, packed_places(packing), rotation, rotation, reach, position=packing.column)

    def split(self, packings: Sequence[Packing]) -> "list[Tokens]":
        """Split into consecutive groups, one for each of `packings`; `cross_kv` is unchanged."""
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
        return [self._subset(*values) for values in columns]

    def _subset(
        self,
        packing: Packing,
        place: Int[Tensor, " K"],
        rotation_index: Int[Tensor, " K"],
        reach: Int[Tensor, " K"] | None,
        position: Int[Tensor, " K"] | None,
    ) -> "Tokens":
        """Return a subset of the tokens, given the values of each of them; `cross_kv` is unchanged."""
        return replace_fields(
            self,
            packing=packing,
            place=place,
            query_rotation=replace_fields(self.query_rotation, where=rotation_index),
            key_rotation=replace_fields(self.key_rotation, where=rotation_index),
            reach=reach,
            position=position,
        )

    def select(self, tokens: Int[Tensor, " K"], rows: Int[Tensor, " R"], packing: Packing) -> "Tokens":
        """Return only `tokens`, all of which are in `rows`, packed by `packing`."""
        query, key = select_rotations((self.query_rotation, self.key_rotation), tokens)
        return replace_fields(
            self,
            packing=packing,
            place=self.place.index_select(0, tokens),
            query_rotation=query,
            key_rotation=key,
            reach=None if self.reach is None else self.reach.index_select(0, tokens),
            cross_kv=None if self.cross_kv is None else self.cross_kv.select_rows(rows),
            position=None if self.position is None else self.position.index_select(0, tokens),
        )

    def part(
        self,
        split: SplitInTwo,
        rows: tuple[Int[Tensor, " R"], Int[np.ndarray, " R"]],
        active: Packing,
        halted_packing: Packing,
    ) -> "tuple[Tokens, Tokens]":
        """Split the tokens in two as in `Placed.part`; the removed tokens have no `cross_kv`."""

        def parts(x: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
            return (None, None) if x is None else split.of(x)

        columns = zip(
            (active, halted_packing),
            split.of(self.place),
            split.of(self.query_rotation.where),
            parts(self.reach),
            parts(self.position),
            strict=True,
        )
        first, second = (self._subset(*values) for values in columns)
        cross_kv = None if self.cross_kv is None else self.cross_kv.select_rows(*rows)
        return replace_fields(first, cross_kv=cross_kv), replace_fields(second, cross_kv=None)


def padded_rows(x: Int[Tensor, " M"], packing: Packing) -> Int[Tensor, " BT"]:
    """Return `x` (one number per token) in the flattened padded form; entries at padding are undefined."""
    return x if packing.dense else x.index_select(0, packing.padded_index.flatten())


def packed_places(packing: Packing, rows: Int[Tensor, " B"] | None = None) -> Int[Tensor, " M"]:
    """Return the dropout place of every packed token of a full batch, or of only some `rows` of it."""
    if rows is None and packing.by_host and packing.row.shape[0] <= MAX_HOST_INDICES:
        counts = packing.host_counts
        row, row_starts = np.repeat(np.arange(counts.shape[0]), counts), np.cumsum(counts) - counts
        number = rows_in_batch(row) * ROW_STRIDE + np.arange(row.shape[0]) - row_starts[row]
        return upload(hash_on_host(number), packing.row.device)
    batch_row = packing.row if rows is None else rows.index_select(0, packing.row)
    return hash_numbers(rows_in_batch(batch_row) * ROW_STRIDE + packing.column)


def batch_places(tokens: Int[Tensor, "N S"]) -> Int[Tensor, "N S"]:
    """Return the dropout place of every entry of a padded batch to which no START and END were added."""
    number, width = tokens.shape
    if number * width <= MAX_HOST_INDICES:
        rows = rows_in_batch(np.arange(number))[:, None]
        return upload(hash_on_host(rows * ROW_STRIDE + np.arange(width)), tokens.device)
    row, column = (torch.arange(size, device=tokens.device) for size in tokens.shape)
    return hash_numbers(rows_in_batch(row)[:, None] * ROW_STRIDE + column)
