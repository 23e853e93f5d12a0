"""A layer of `layers.block` run as a compiled region: what that needs, gathered from modules and tokens.

Attention is PyTorch's fused kernel on CUDA, where no weights are dropped, and the explicit product elsewhere.
Masks are the keyed ones on every device.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from trainables.layers.attention import HEAD_STRIDE
from trainables.layers.dropout import KeyedDropout, taken_side_by_side
from trainables.layers.host import uploaded
from trainables.layers.linear import LayerNorm, joined
from trainables.layers.packing import Packing
from trainables.layers.positions import NoRotation, Rotation
from trainables.layers.tokens import KeysValues, Placed, Tokens
from trainables.regions import block as region
from trainables.regions.masks import ElementMask, WeightMask, drawn_weights

if TYPE_CHECKING:
    from trainables.layers.block import Attention, Block, CrossAttention, Recall
    from trainables.layers.memory import Update


def run(block: "Block", x: Tensor, tokens: Tokens, seen: KeysValues | None) -> Tensor:
    """`block` on tokens with states `x`."""
    block.dropouts.draw(tokens.place)
    attention = block.attention
    where = region.Where(
        tokens.packing.rows,
        _factors(tokens.query_rotation),
        _factors(tokens.key_rotation) if seen is None else None,
        tokens.reach,
        None if seen is None else _seen(seen),
    )
    kept = _kept_weights(attention, tokens, tokens.packing if seen is None else seen.packing)
    recall_weights, recalling = None, None
    if block.recall is not None:
        assert tokens.recalled is not None
        assert tokens.recallers is None
        recalling = _recalling(tokens.recalled)
        recall_weights = _kept_weights(block.recall.attention, tokens.recalling, tokens.recalled.packing)
    dropped = region.Dropped(
        kept,
        _kept(attention.output_dropout, tokens),
        recall_weights,
        None if block.recall is None else _kept(block.recall.attention.output_dropout, tokens),
        _inner(block, tokens),
        _kept(block.feedforward.outer_dropout, tokens),
        None if block.gate is None else _kept(block.gate.outer_dropout, tokens),
    )
    weights, shapes = _weights(block, tokens, alone=seen is None)
    return region.layer(
        x,
        weights,
        where,
        dropped,
        recalling,
        shapes=shapes,
        gated=block.gate is not None,
        heads=attention.heads,
        fused=x.is_cuda and kept is None and recall_weights is None,
    )


def keys_values(block: "Block", x: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Rotated keys, and values, of `tokens` with states `x`, which are normed first."""
    attention, norm = block.attention, block.attention_norm
    weight = tokens.once((attention, "kv"), lambda: joined(attention.key.weight, attention.value.weight))
    rotation = _factors(tokens.key_rotation)
    return region.keys_values(x, _affine(norm), weight, rotation, heads=attention.heads)


def _seen(seen: KeysValues) -> region.GivenKeys:
    # A tensor that is given twice is compiled for once, and not for two: these may be those of the queries.
    return region.GivenKeys(seen.keys, seen.values, *(each.detach() for each in seen.packing.rows))


def _weights(
    block: "Block", tokens: Tokens, *, alone: bool
) -> tuple[region.Joined, tuple[tuple[int, int], ...]]:
    """All weights of a layer, joined once for all passes through it, and the shapes of the matrices."""
    attention, feedforward, gate, recall = block.attention, block.feedforward, block.gate, block.recall
    first = [attention.query.weight]
    if alone:
        first += [attention.key.weight, attention.value.weight]
    inner = [feedforward.inner, *([] if gate is None else [gate.inner])]
    outer = [feedforward.outer, *([] if gate is None else [gate.outer])]
    groups = [first, [attention.output.weight], [each.weight for each in inner]]
    groups += [[each.weight] for each in outer]
    norms = [block.attention_norm, block.feedforward_norm]
    vectors = [*_both(norms), *(each.bias for each in (*inner, *outer))]
    if recall is not None:
        groups += [[recall.attention.query.weight], [recall.attention.output.weight]]
        vectors += _both([recall.query_norm])
    shapes = _shapes(groups)
    every = [each.flatten() for group in groups for each in group]
    made = tokens.once((block, alone), lambda: region.Joined(joined(*every), torch.cat(vectors)))
    return made, shapes


def update(layer: "Update", slots: Tensor, placed: Placed, states: Tensor, packing: Packing) -> Tensor:
    """`layer` on packed slots of memory, which take in the `states` of `packing`."""
    layer.dropouts.draw(placed.place)
    recall, feedforward = layer.recall, layer.feedforward
    attention = recall.attention
    kept = _kept_weights(attention, placed, packing)
    dropped = region.Dropped(
        kept,
        _kept(attention.output_dropout, placed),
        None,
        None,
        _kept(feedforward.inner_dropout, placed),
        _kept(feedforward.outer_dropout, placed),
        None,
    )
    groups = [
        [attention.query.weight],
        [attention.key.weight, attention.value.weight],
        *([each.weight] for each in (attention.output, feedforward.inner, feedforward.outer)),
    ]
    vectors = _both([recall.query_norm, recall.source_norm, layer.feedforward_norm])
    vectors += [feedforward.inner.bias, feedforward.outer.bias]
    shapes, every = _shapes(groups), [each.flatten() for group in groups for each in group]
    return region.updated(
        slots,
        states,
        region.Joined(joined(*every), torch.cat(vectors)),
        region.UpdatePlaces(placed.packing.rows, packing.rows),
        dropped,
        shapes=shapes,
        heads=attention.heads,
        fused=slots.is_cuda and kept is None,
    )


def offer(recall: "Recall", x: Tensor, packing: Packing) -> KeysValues:
    """Keys and values of rows of vectors `x`, for cross-attention."""
    attention = recall.attention
    weight = joined(attention.key.weight, attention.value.weight)
    made = region.keys_values(x, _affine(recall.source_norm), weight, None, heads=attention.heads)
    return KeysValues(*made, packing)


def _shapes(groups: list[list[Tensor]]) -> tuple[tuple[int, int], ...]:
    """Of matrices that are joined by their rows."""
    return tuple((sum(each.shape[0] for each in group), group[0].shape[1]) for group in groups)


def _both(norms: list[LayerNorm]) -> list[Tensor]:
    return [each for norm in norms for each in (norm.weight, norm.bias)]


def _affine(module: Any) -> region.Affine:
    return region.Affine(module.weight, module.bias)


def _recalling(recalled: KeysValues) -> region.Recalling:
    keys, values = recalled.padded
    return region.Recalling(
        keys,
        values,
        recalled.packing.rows.mask,
    )


def _factors(rotation: Rotation) -> Tensor | None:
    return None if isinstance(rotation, NoRotation) else torch.view_as_real(rotation.factor)


def _kept(dropout: KeyedDropout, tokens: Placed) -> ElementMask | None:
    if not dropout.active:
        return None
    return ElementMask(dropout.taken(tokens.place, dropout.columns or 0), 1 / dropout.keep_share())


def _inner(block: "Block", tokens: Placed) -> ElementMask | None:
    """Masks of hidden layers, those of feed-forward and gate as one."""
    first = block.feedforward.inner_dropout
    if block.gate is None or not first.active:
        return _kept(first, tokens)
    keep = taken_side_by_side((first, block.gate.inner_dropout), tokens.place)
    return ElementMask(keep, 1 / first.keep_share())


def _kept_weights(
    attention: "Attention | CrossAttention", placed: Placed, keys: Packing
) -> WeightMask | None:
    """The mask of attention weights."""
    dropout = attention.weight_dropout
    if not dropout.active:
        return None
    key = dropout.draw()
    parts = uploaded(np.array([key & 0x7FFFFFFF, key >> 32], dtype=np.int64), placed.place.device)
    keep = drawn_weights(
        placed.padded_place,
        parts,
        keys.rows.mask,
        heads=attention.heads,
        stride=HEAD_STRIDE,
        levels=dropout.levels,
    )
    return WeightMask(keep, 1 / dropout.keep_share())
