"""Depth recurrence of one new token in each row, given what earlier tokens were at every layer.

In a causal row no token changes those before it, so their keys, values and sums are kept layer by layer. A
token that has halted stands still: above the layer where it halted it offers what it ended as.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trainables.layers.halting import Decision, Halting, decide, keep
from trainables.layers.tokens import Tokens
from trainables.recurrence.decoding_state import Layer, Past
from trainables.recurrence.depth import Recursion, Repeated


def think_on(
    block: Repeated, recursion: Recursion | None, y: Float[Tensor, "R D"], tokens: Tokens, past: Past
) -> tuple[Float[Tensor, "R D"], Past]:
    """Final states of the new `tokens` with states `y`, and the past that includes them.

    Without a `recursion` nothing halts: every layer of `past` is run.
    """
    states, layers = y, list(past.layers)
    if recursion is None:
        for number, layer in enumerate(layers):
            layers[number] = layer.with_token(*block.keys_values(states, tokens.key_rotation))
            states = _next(block, states, tokens, layers[number])
        return states, replace(past, layers=tuple(layers), length=past.length + 1)
    cap = torch.full(y.shape[:1], recursion.max_layers, device=y.device)
    books = Halting.begin(cap, y.dtype)
    mixed = torch.zeros_like(y, dtype=books.survival.dtype)
    length = past.length + 1
    for number, before in enumerate(past.layers):
        source = mixed + books.survival[:, None] * states if recursion.sees_mixture else states
        layer = before.with_token(*block.keys_values(source, tokens.key_rotation))
        sum_before, now = _summary(recursion, layer.before, states, length)
        # What does not look at the next states is decided first: a layer is not run on who does not keep it.
        decision = None if recursion.transition else _decide(recursion, books, number, now)
        thinks = books.active if decision is None else decision.keeps
        proposed = _next_of_some(block, states, tokens, layer, thinks)
        sum_after, then = _summary(recursion, layer.after, proposed, length)
        if decision is None:
            decision = _decide(recursion, books, number, torch.cat((now, then), -1))
        layers[number] = layer.with_sums(sum_before, sum_after)
        keeps = decision.keeps[:, None]
        mixed = torch.where(keeps, mixed + decision.weight[:, None] * states, mixed)
        states = torch.where(keeps, proposed, states)
        books = keep(books, decision)
    final = mixed + books.survival[:, None] * states
    return final, replace(past, layers=tuple(layers), length=length)


def _next(block: Repeated, states: Tensor, tokens: Tokens, layer: Layer) -> Tensor:
    """States one layer on; what else the layer tells is of no use once weights are learned."""
    made = block(states, tokens, layer.seen)
    return made[0] if isinstance(made, tuple) else made


def _next_of_some(
    block: Repeated, states: Tensor, tokens: Tokens, layer: Layer, thinks: Bool[Tensor, " R"]
) -> Float[Tensor, "R D"]:
    """The same where a token thinks; the states of the others as they are, at no cost."""
    rows, _, packing = tokens.packing.select(thinks)
    if rows.shape[0] == 0:
        return states
    if rows.shape[0] == states.shape[0]:
        return _next(block, states, tokens, layer)
    assert tokens.recalled is not None
    assert tokens.recallers is not None
    _, inputs, recallers = tokens.recallers.select(thinks)
    some = replace(tokens, recalled=None).select(rows, rows, packing)
    some = replace(some, recalled=tokens.recalled.select_rows(inputs), recallers=recallers)
    made = _next(block, states.index_select(0, rows), some, layer.select(rows))
    return states.index_copy(0, rows, made.to(states.dtype))


def _decide(recursion: Recursion, books: Halting, number: int, features: Float[Tensor, "R F"]) -> Decision:
    p = torch.zeros_like(books.survival) if number < recursion.origin else recursion.halt(features)
    return decide(books, p, recursion.threshold, recursion.rule)


def _summary(
    recursion: Recursion, total: Float[Tensor, "R D"] | None, states: Float[Tensor, "R D"], length: int
) -> tuple[Float[Tensor, "R D"] | None, Float[Tensor, "R D"]]:
    """What halting looks at, the tokens themselves or means over their rows, and sums that means need."""
    if not recursion.running:
        return None, states
    total = states if total is None else total + states
    return total, total / length
