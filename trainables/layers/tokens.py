"""Describe the active tokens of a batch: positions, attention range, and places for dropout masks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from trainables.layers.batch_parts import rows_in_batch
from trainables.layers.head_rows import pad_head_parts
from trainables.layers.mask_draws import hash_numbers
from trainables.layers.packing import Packing, take
from trainables.layers.xpos import rotate, rotation_table

ROW_STRIDE = 1 << 16


@dataclass(frozen=True)
class KeysValues:
    """Rotated keys and values of full rows, which queries attend to."""

    both: Float[Tensor, "L 2 H E"]
    """Keys and values side by side, (tokens, 2, heads, head width)."""
    packing: Packing

    @classmethod
    def of(
        cls, keys: Float[Tensor, "L H E"], values: Float[Tensor, "L H E"], packing: Packing
    ) -> "KeysValues":
        """Build from separate keys and values."""
        return cls(torch.stack((keys, values), 1), packing)

    @cached_property
    def padded(self) -> Float[Tensor, "2 B H K E"]:
        """Padded keys and values for batched products, built once for all queries."""
        return pad_head_parts(self.both, self.packing)

    def without_cache(self) -> "KeysValues":
        """Return a copy with an empty cache."""
        return replace(self)

    def with_rows(self, indices: Int[Tensor, " K"], replacements: "KeysValues") -> "KeysValues":
        """Return a copy in which the entries at `indices` are replaced by `replacements`."""
        return KeysValues(self.both.index_copy(0, indices, replacements.both), self.packing)

    def select_rows(self, rows: Int[np.ndarray, " R"]) -> "KeysValues":
        """Return the keys and values of some rows, given in ascending order, each with all its tokens."""
        packing = self.packing
        if rows.shape[0] == packing.num_rows:
            return self
        is_staying = np.isin(np.arange(packing.num_rows), rows)
        tokens, _, new_packing = packing.select(np.repeat(is_staying, packing.host_counts))
        return KeysValues(take(self.both, tokens), new_packing)


@dataclass(frozen=True)
class PlacedVectors:
    """M packed vectors with their packing in rows and their places in the full batch."""

    packing: Packing
    place: Int[Tensor, " M"]
    """Hash of row and position in the full batch. It does not change when other tokens are removed."""
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False, kw_only=True)
    """Values cached by `get_cached`."""

    def get_cached(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the result of `make()`, cached under `key` for all layers of a forward pass."""
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]

    def without_cache(self) -> "PlacedVectors":
        """Return a copy without cached values that depend on weights."""
        return replace(self, cache={})

    @property
    def padded_place(self) -> Int[Tensor, "B T"]:
        """Places in the padded form; entries at padding are undefined."""
        packing = self.packing
        places: Tensor = self._get_cached_for(
            self.place, lambda: padded_rows(self.place, packing).view(-1, packing.width)
        )
        return places

    def _get_cached_for(self, numbers: Tensor, make: Callable[[], Any]) -> Any:
        """Return the result of `make()`, cached for all objects that share `numbers` and the packing.

        `make` computes the value from one number per token and from the packing.
        """
        # The cache keeps a reference to `numbers`, so that no other tensor can have the same `id`.
        return self.packing.get_cached(("made for", id(numbers)), lambda: (numbers, make()))[1]

    def select(
        self,
        tokens: Int[Tensor, " K"],
        rows: Int[np.ndarray, " R"],  # noqa: ARG002 for subclasses
        packing: Packing,
    ) -> "PlacedVectors":
        """Return only `tokens`, all of which are in `rows`, packed by `packing`."""
        return replace(self, packing=packing, place=self.place.index_select(0, tokens))


@dataclass(frozen=True)
class Tokens(PlacedVectors):
    """Packed tokens with the rotations of their queries and keys, and the keys that they may attend to."""

    position: Int[Tensor, " M"]
    """Position of each token in its row of the full batch."""
    rotations: Complex[Tensor, "T 4 half"] | None = None
    """Factors of queries and keys by position (`xpos.rotation_table`); None without rotary positions."""
    num_visible: Int[Tensor, " M"] | None = None
    """In causal attention, the number of tokens of its row that each token may attend to: all up to itself.
    None: all tokens of the row. Attention to `cross_kv` is never causal."""
    cross_kv: KeysValues | None = None
    """Keys and values that the tokens of each row attend to in addition to their own row: the memory of
    earlier chunks, or the encoded input."""
    cross_queries: Packing | None = None
    """Packing of the tokens in the rows of `cross_kv`, if several rows of tokens share one of these rows."""

    def rotate(self, x: Float[Tensor, "M P H E"], parts: slice) -> Float[Tensor, "M P H E"]:
        """Return `x` with its first parts, those of (queries, keys) in `parts`, rotated by position."""
        if (table := self.rotations) is None:
            return x
        factors = self._get_cached_for(
            self.position, lambda: table.index_select(0, self.position)[:, :, None]
        )
        return rotate(x, factors, parts)

    def without_cache(self) -> "Tokens":
        """Return a copy without cached values that depend on weights, also in `cross_kv`."""
        return replace(
            self, cross_kv=None if self.cross_kv is None else self.cross_kv.without_cache(), cache={}
        )

    @property
    def cross_placed(self) -> PlacedVectors:
        """The tokens as queries for attention to `cross_kv`."""
        return self if self.cross_queries is None else PlacedVectors(self.cross_queries, self.place)

    @classmethod
    def of(cls, packing: Packing, head_width: int, dtype: torch.dtype, *, causal: bool = False) -> "Tokens":
        """Build all tokens of a full batch, with positions counted from 0 in each row."""
        table = rotation_table(packing.width, head_width, dtype, packing.row.device)
        return replace(cls.unrotated(packing, causal=causal), rotations=table)

    @classmethod
    def unrotated(cls, packing: Packing, *, causal: bool = False) -> "Tokens":
        """Build all tokens of a full batch for a model without rotary positions."""
        num_visible = packing.column + 1 if causal else None
        return cls(packing, packed_places(packing), packing.column, num_visible=num_visible)

    def split(self, packings: Sequence[Packing]) -> "list[Tokens]":
        """Split into consecutive groups, one for each of `packings`; `cross_kv` is unchanged."""
        sizes = [packing.row.shape[0] for packing in packings]
        num_visible = (
            [None] * len(sizes) if self.num_visible is None else self.num_visible.split_with_sizes(sizes)
        )
        columns = zip(
            packings,
            self.place.split_with_sizes(sizes),
            self.position.split_with_sizes(sizes),
            num_visible,
            strict=True,
        )
        return [
            replace(self, packing=packing, place=place, position=position, num_visible=part)
            for packing, place, position, part in columns
        ]

    def select(self, tokens: Int[Tensor, " K"], rows: Int[np.ndarray, " R"], packing: Packing) -> "Tokens":
        """Return only `tokens`, all of which are in `rows`, packed by `packing`."""
        return replace(
            self,
            packing=packing,
            place=self.place.index_select(0, tokens),
            position=self.position.index_select(0, tokens),
            num_visible=None if self.num_visible is None else self.num_visible.index_select(0, tokens),
            cross_kv=None if self.cross_kv is None else self.cross_kv.select_rows(rows),
        )


def padded_rows(x: Int[Tensor, " M"], packing: Packing) -> Int[Tensor, " BT"]:
    """Return `x` (one number per token) in the flattened padded form; entries at padding are undefined."""
    return x if packing.is_dense else x.index_select(0, packing.padded_index.flatten())


def packed_places(packing: Packing, rows: Int[Tensor, " B"] | None = None) -> Int[Tensor, " M"]:
    """Return the dropout place of every packed token of a full batch, or of only some `rows` of it."""
    batch_row = packing.row if rows is None else rows.index_select(0, packing.row)
    return hash_numbers(rows_in_batch(batch_row) * ROW_STRIDE + packing.column)


def batch_places(tokens: Int[Tensor, "N S"]) -> Int[Tensor, "N S"]:
    """Return the dropout place of every entry of a padded batch to which no START and END were added."""
    row, column = (torch.arange(size, device=tokens.device) for size in tokens.shape)
    return hash_numbers(rows_in_batch(row)[:, None] * ROW_STRIDE + column)
