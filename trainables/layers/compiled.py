"""A layer of `layers.block` run as a compiled region: what that needs, gathered from modules and tokens.

Attention is one fused kernel of PyTorch's, and masks are the keyed ones, on every device.
"""

from typing import TYPE_CHECKING

from torch import Tensor

from trainables.layers.attention import pairs_of_keys
from trainables.layers.packing import Packing
from trainables.layers.positions import NoRotation, Rotation, turning_table
from trainables.layers.tokens import KeysValues, Placed, Tokens
from trainables.regions import block as region
from trainables.regions.heads import Turning
from trainables.regions.masks import WeightMask

if TYPE_CHECKING:
    from trainables.layers.block import Attention, Block, CrossAttention, Recall
    from trainables.layers.memory import Update


def run(block: "Block", x: Tensor, tokens: Tokens, seen: KeysValues | None) -> Tensor:
    """`block` on tokens with states `x`."""
    given = None if seen is None else _given(seen)
    found = parts(block, tokens, given, tokens.packing if seen is None else seen.packing)
    return region.layer(x, *found, heads=block.attention.heads)


def parts(block: "Block", tokens: Tokens, seen: region.GivenKeys | None, keys: Packing) -> region.LayerParts:
    """What a region needs of a layer on `tokens`, which attend to keys packed by `keys`."""
    attention, feedforward, gate, recall = block.attention, block.feedforward, block.gate, block.recall
    kept = block.dropouts.masks(tokens.place.device)
    assert tokens.recallers is None
    assert recall is None or tokens.recalled is not None
    where = region.Where(
        tokens.packing.rows,
        tokens.place,
        _turning(tokens.query_rotation),
        tokens.reach,
        seen,
        None if recall is None or tokens.recalled is None else _given(tokens.recalled),
    )
    dropped = region.Dropped(
        _kept_weights(attention, tokens, keys),
        kept.get(attention.output_dropout),
        None
        if tokens.recalled is None or recall is None
        else _kept_weights(recall.attention, tokens, tokens.recalled.packing),
        None if recall is None else kept.get(recall.attention.output_dropout),
        kept.get(feedforward.inner_dropout),
        kept.get(feedforward.outer_dropout),
        None if gate is None else kept.get(gate.inner_dropout),
        None if gate is None else kept.get(gate.outer_dropout),
    )
    return region.LayerParts(_weights(block, tokens, alone=seen is None), where, dropped)


def making(block: "Block", tokens: Tokens) -> tuple[region.Affine, Tensor, Turning | None]:
    """The norm, the weight and the turning by which keys and values of `tokens` are made."""
    (weight,) = block.attention.maps(alone=False).whole(tokens)
    return region.Affine.of(block.attention_norm), weight, _turning(tokens.key_rotation)


def rows_of_keys(keys: Packing, both: Tensor | None = None) -> region.GivenKeys:
    """Keys and values that are given, or are yet to be made, packed by `keys`."""
    # A tensor that is given twice is compiled for once, and not for two: these may be those of the queries.
    return region.GivenKeys(None, None, both, *(each.detach() for each in keys.rows))


def keys_values(block: "Block", x: Tensor, tokens: Tokens, mixing: region.Mixing | None = None) -> KeysValues:
    """Rotated keys, and values, of `tokens` with states `x`, or with mixtures of these, normed first."""
    made = region.keys_beside_values(x, *making(block, tokens), mixing, heads=block.attention.heads)
    return KeysValues.beside(made, tokens.packing)


def _given(seen: KeysValues) -> region.GivenKeys:
    given = rows_of_keys(seen.packing, seen.both)
    return given if seen.both is not None else given._replace(keys=seen.keys, values=seen.values)


def _weights(block: "Block", tokens: Tokens, *, alone: bool) -> region.Weights:
    """Of a layer; those of maps of the same inputs are joined, once for all passes through it."""
    attention, feedforward, gate, recall = block.attention, block.feedforward, block.gate, block.recall
    first = attention.query.weight
    if alone:
        (first,) = attention.maps(alone=True).whole(tokens)
    inner = region.Affine.of(feedforward.inner)
    if gate is not None:
        inner = region.Affine(*feedforward.maps_beside(gate).whole(tokens))
    return region.Weights(
        region.Affine.of(block.attention_norm),
        first,
        attention.output.weight,
        region.Affine.of(block.feedforward_norm),
        inner,
        region.Affine.of(feedforward.outer),
        None if gate is None else region.Affine.of(gate.outer),
        None if recall is None else region.Affine.of(recall.query_norm),
        None if recall is None else recall.attention.query.weight,
        None if recall is None else recall.attention.output.weight,
    )


def update(layer: "Update", slots: Tensor, placed: Placed, states: Tensor, packing: Packing) -> Tensor:
    """`layer` on packed slots of memory, which take in the `states` of `packing`."""
    recall, feedforward = layer.recall, layer.feedforward
    attention = recall.attention
    kept = layer.dropouts.masks(placed.place.device)
    dropped = region.Dropped(
        _kept_weights(attention, placed, packing),
        kept.get(attention.output_dropout),
        None,
        None,
        kept.get(feedforward.inner_dropout),
        kept.get(feedforward.outer_dropout),
        None,
        None,
    )
    (offered,) = attention.maps().whole(placed)
    weights = region.UpdateWeights(
        region.Affine.of(recall.query_norm),
        attention.query.weight,
        region.Affine.of(recall.source_norm),
        offered,
        attention.output.weight,
        region.Affine.of(layer.feedforward_norm),
        region.Affine.of(feedforward.inner),
        region.Affine.of(feedforward.outer),
    )
    places = region.UpdatePlaces(placed.packing.rows, placed.place, packing.rows)
    return region.updated(slots, states, weights, places, dropped, heads=attention.heads)


def offer(recall: "Recall", x: Tensor, packing: Packing, placed: Placed | None) -> KeysValues:
    """Keys and values of rows of vectors `x`, for cross-attention."""
    (weight,), heads = recall.attention.maps().whole(placed), recall.attention.heads
    made = region.keys_beside_values(x, region.Affine.of(recall.source_norm), weight, None, None, heads=heads)
    return KeysValues.beside(made, packing)


def _turning(rotation: Rotation) -> Turning | None:
    if isinstance(rotation, NoRotation):
        return None
    return Turning(rotation.where, turning_table(rotation))


def _kept_weights(
    attention: "Attention | CrossAttention", placed: Placed, keys: Packing
) -> WeightMask | None:
    """The mask of attention weights."""
    dropout = attention.weight_dropout
    if not dropout.active:
        return None
    # One pair is no case of its own.
    salt = dropout.salt(pairs_of_keys(attention.heads, max(keys.width, 3)), placed.place.device)
    return WeightMask(salt.flatten(0, 1), dropout.levels, 1 / dropout.keep_share())
