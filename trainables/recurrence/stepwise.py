"""Depth recurrence of one new token in each row, from the cached keys and values of earlier tokens.

In a causal row no token changes earlier ones, so keys, values and sums of earlier tokens are cached for each
layer. In layers above the one in which a token halted, its keys and values are those of its final state.

Shapes: R rows (hypotheses) of one new token each, D the width of a state.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trainables.layers.halting import Decision, HaltingState, States, decide, keep
from trainables.layers.tokens import Tokens
from trainables.recurrence.decoding_state import DecodingState, LayerCache
from trainables.recurrence.depth import DepthRecurrence, RecurrentLayer


def extend_by_one_token(
    repeated_layer: RecurrentLayer,
    recurrence: DepthRecurrence | None,
    y: Float[Tensor, "R D"],
    tokens: Tokens,
    decoding: DecodingState,
) -> tuple[Float[Tensor, "R D"], DecodingState]:
    """Return the final states of one new token in each row, and the decoding state that includes it.

    Args:
        repeated_layer: The layer that is repeated.
        recurrence: Halting rules; None: every layer of `decoding` is run.
        y: Initial states of the new tokens, (rows, width).
        tokens: The new tokens.
        decoding: Decoding state of the earlier tokens.
    """
    states, layers = y, list(decoding.layers)
    if recurrence is None:
        for number, layer in enumerate(layers):
            layers[number] = layer.with_token(repeated_layer.keys_values(states, tokens))
            states = _next_state(repeated_layer, states, tokens, layers[number])
        return states, replace(decoding, layers=tuple(layers), length=decoding.length + 1)
    cap = torch.full(y.shape[:1], recurrence.max_layers, device=y.device)
    halting = HaltingState.begin(cap, y.dtype)
    mixed = torch.zeros_like(y, dtype=halting.survival.dtype)
    length = decoding.length + 1
    for number, before in enumerate(decoding.layers):
        source = mixed + halting.survival[:, None] * states if recurrence.sees_mixture else states
        layer = before.with_token(repeated_layer.keys_values(source, tokens))
        sum_before, context_before = _summary(recurrence, layer.before, states, length)
        # Without transition features the decision comes first: only tokens that keep the layer run it.
        decision = None if recurrence.transition else _decide(recurrence, halting, number, context_before)
        runs_layer = halting.active if decision is None else decision.keeps
        if recurrence.halted_proposals:
            runs_layer = torch.ones_like(runs_layer)
        proposed = _next_active_states(repeated_layer, states, tokens, layer, runs_layer)
        sum_after, context_after = _summary(recurrence, layer.after, proposed, length)
        if decision is None:
            decision = _decide(recurrence, halting, number, torch.cat((context_before, context_after), -1))
        layers[number] = layer.with_sums(sum_before, sum_after)
        halting, mixed, states = keep(halting, decision, States(states, proposed, mixed, None))
    final = mixed + halting.survival[:, None] * states
    return final, replace(decoding, layers=tuple(layers), length=length)


def _next_state(repeated_layer: RecurrentLayer, states: Tensor, tokens: Tokens, layer: LayerCache) -> Tensor:
    """Return the states after one layer; side outputs are dropped because only training uses them."""
    outputs = repeated_layer(states, tokens, layer.keys_values)
    return outputs[0] if isinstance(outputs, tuple) else outputs


def _next_active_states(
    repeated_layer: RecurrentLayer,
    states: Tensor,
    tokens: Tokens,
    layer: LayerCache,
    runs_layer: Bool[Tensor, " R"],
) -> Float[Tensor, "R D"]:
    """Return the states after one layer, which changes only the states of tokens in `runs_layer`."""
    rows, host_rows, packing = tokens.packing.select(runs_layer)
    if rows.shape[0] == 0:
        return states
    if rows.shape[0] == states.shape[0]:
        return _next_state(repeated_layer, states, tokens, layer)
    assert tokens.cross_kv is not None
    assert tokens.cross_queries is not None
    _, inputs, cross_queries = tokens.cross_queries.select(runs_layer)
    row_tokens = replace(tokens, cross_kv=None).select(rows, host_rows, packing)
    row_tokens = replace(
        row_tokens, cross_kv=tokens.cross_kv.select_rows(inputs), cross_queries=cross_queries
    )
    outputs = _next_state(repeated_layer, states.index_select(0, rows), row_tokens, layer.select(rows))
    return states.index_copy(0, rows, outputs.to(states.dtype))


def _decide(
    recurrence: DepthRecurrence, halting: HaltingState, number: int, features: Float[Tensor, "R F"]
) -> Decision:
    p = torch.zeros_like(halting.survival) if number < recurrence.origin else recurrence.halt(features)
    return decide(halting, p, recurrence.threshold, recurrence.rule)


def _summary(
    recurrence: DepthRecurrence, total: Float[Tensor, "R D"] | None, states: Float[Tensor, "R D"], length: int
) -> tuple[Float[Tensor, "R D"] | None, Float[Tensor, "R D"]]:
    """Return the sums over rows (None if no means are used) and the input of the halting function."""
    if not recurrence.uses_running_means:
        return None, states
    total = states if total is None else total + states
    return total, total / length
