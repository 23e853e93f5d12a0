"""Depth recurrence of one new token in each row, given what earlier tokens were at every layer.

In a causal row no token changes those before it, so their keys, values and sums are kept layer by layer. A
token that has halted stands still: above the layer where it halted it offers what it ended as.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from trainables.layers.block import Block
from trainables.layers.halting import Halting, decide, keep
from trainables.models._past import Layer, Past
from trainables.models._universal import HaltingProbability, UniversalSettings


def think_on(
    config: UniversalSettings,
    block: Block,
    halt: HaltingProbability | None,
    y: Float[Tensor, "R D"],
    past: Past,
) -> tuple[Float[Tensor, "R D"], Past]:
    """Final states of the new tokens `y`, and the past that includes them."""
    tokens = past.tokens(config.size_of_head, y)
    rounds = config.halt
    states, layers = y, list(past.layers)
    if halt is None or rounds is None:
        for number, layer in enumerate(layers):
            layers[number] = layer.with_token(*block.keys_values(states, tokens.key_rotation))
            states = block(states, tokens, layers[number].seen)
        return states, replace(past, layers=tuple(layers), length=past.length + 1)
    cap = torch.full(y.shape[:1], config.max_layers, device=y.device)
    books = Halting.begin(cap, y.dtype)
    mixed = torch.zeros_like(y, dtype=books.survival.dtype)
    for number, before in enumerate(past.layers):
        source = mixed + books.survival[:, None] * states if config.sees_mixture else states
        layer = before.with_token(*block.keys_values(source, tokens.key_rotation))
        proposed = states
        if bool(books.active.any()):
            proposed = torch.where(books.active[:, None], block(states, tokens, layer.seen), states)
        layers[number], looks = _summaries(config, layer, states, proposed, past.length + 1)
        if number < rounds.origin:
            p = torch.zeros_like(books.survival)
        else:
            p = halt(torch.cat(looks, -1) if rounds.transition else looks[0])
        decision = decide(books, p, rounds.threshold, rounds.rule)
        keeps = decision.keeps[:, None]
        mixed = torch.where(keeps, mixed + decision.weight[:, None] * states, mixed)
        states = torch.where(keeps, proposed, states)
        books = keep(books, decision)
    final = mixed + books.survival[:, None] * states
    return final, replace(past, layers=tuple(layers), length=past.length + 1)


def _summaries(
    config: UniversalSettings, layer: Layer, states: Tensor, proposed: Tensor, length: int
) -> tuple[Layer, tuple[Tensor, Tensor]]:
    """What halting looks at before and after a layer: the tokens themselves, or means over their rows."""
    if not config.running:
        return layer, (states, proposed)
    before = states if layer.before is None else layer.before + states
    after = proposed if layer.after is None else layer.after + proposed
    return layer.with_sums(before, after), (before / length, after / length)
