"""The Sparse Universal Transformer for one sequence, token by token and expert by expert.

From Tan et al., Sparse Universal Transformer, s. 3 and Alg. 1, in the order of the released code: evaluate
the gate on h_{l-1}, test the threshold, then run layer l. No batches, no sorting, no code of the product.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, Vectors, gelu, layer_norm, pool, sinusoid

ZERO = torch.zeros((), dtype=torch.float64)


@dataclass
class RoutingChoice:
    """Routing of one token by one router in one layer."""

    mixture: str
    probabilities: list[Tensor]
    chosen: list[int]
    weight: Tensor
    """Probability that the token has not halted."""


@dataclass
class RoutingContext:
    """Settings of one token's routing in one layer: list of choices, weight, and random numbers."""

    choices: list[RoutingChoice]
    weight: Tensor
    numbers: Callable[[str], list[float]] | None


@dataclass
class Token:
    """History of one token: states h_1 .. h_K and, from h_1 on, its conditional halting probabilities."""

    embedded: Tensor
    states: list[Tensor] = field(default_factory=list)
    hats: list[Tensor] = field(default_factory=list)
    halted: bool = False

    @property
    def last(self) -> Tensor:
        return self.states[-1] if self.states else self.embedded

    def weights(self) -> list[Tensor]:
        """a_j = hat_j prod_{i<j} (1 - hat_i), j from 1."""
        return [hat * self.survival(j) for j, hat in enumerate(self.hats)]

    def survival(self, steps: int | None = None) -> Tensor:
        remaining = ZERO + 1
        for hat in self.hats[:steps]:
            remaining = remaining * (1 - hat)
        return remaining

    def mixture(self) -> Tensor:
        """s = sum_j a_j h_j + (1 - sum_j a_j) h_l."""
        if not self.states:
            return self.embedded
        weights = self.weights()
        halted = sum((a * h for a, h in zip(weights, self.states, strict=False)), torch.zeros_like(self.last))
        return halted + (1 - sum(weights, ZERO)) * self.last

    def cost(self) -> Tensor:
        weights = self.weights()
        spent = sum((a * j for j, a in enumerate(weights, start=1)), ZERO)
        return spent + (1 - sum(weights, ZERO)) * len(self.states)


@dataclass
class NaiveOutput:
    """Output of the model for one sequence."""

    states: list[Tensor]
    pooled: Tensor
    depth: float
    ponder: Tensor
    choices: list[RoutingChoice]


Noise = Callable[[str, int, int], list[float]]
"""Function that returns, in training, a number between 0 and 1 for each expert of a mixture."""


def encode(p: Parameters, config: dict[str, Any], x: Tensor, noise: Noise | None = None) -> NaiveOutput:
    """Encode `x`, the tokens of one sequence without padding, with the full settings `config`."""
    scaled = [token * math.sqrt(len(token)) for token in x]
    if not config["causal"]:
        scaled = [p["boundaries.start.weight"], *scaled, p["boundaries.end.weight"]]
    return _run(p, config, scaled, noise=noise)


def decode(
    p: Parameters, config: dict[str, Any], y: Tensor, memory: Tensor, noise: Noise | None = None
) -> NaiveOutput:
    """Decode the written tokens `y` with the encoded input `memory`, both without padding."""
    scaled = [token * math.sqrt(len(token)) for token in y]
    return _run(p, config | {"causal": True, "pooling": "end"}, scaled, memory, noise)


def _run(
    p: Parameters,
    config: dict[str, Any],
    x: Vectors,
    memory: Tensor | None = None,
    noise: Noise | None = None,
) -> NaiveOutput:
    if config["absolute_positions"]:
        position_code = sinusoid if config["position_layout"] == "alternating" else _fairseq_sinusoid
        x = [token_ + position_code(t, len(token_)) for t, token_ in enumerate(x)]
    tokens = [Token(token_) for token_ in x]
    cross_kv = None if memory is None else _keys_values(p, "block.recall", memory)
    choices: list[RoutingChoice] = []
    halts = config["halt"] is not None
    for step in range(1, config["max_layers"] + 1):
        keys_and_values = _project_kv(
            p, config, [token.mixture() if halts else token.last for token in tokens]
        )
        for token in tokens:
            if halts and step > 1 and not token.halted:
                _update_halting(p, token, config["halt"]["threshold"])
        new_states = {}
        for t, token in enumerate(tokens):
            if not token.halted:
                visible = [token_[: t + 1] if config["causal"] else token_ for token_ in keys_and_values]
                weight = token.survival() if halts else ZERO + 1
                record = RoutingContext(choices, weight, noise and partial(noise, layer=step, token=t))
                new_states[t] = _layer(p, config, token.last, t, visible, cross_kv, record)
        for t, state in new_states.items():
            tokens[t].states.append(state)
    states = [token.mixture() if halts else token.last for token in tokens]
    if config["norm"] == "pre":
        states = [layer_norm(p, "final_norm.norm", state) for state in states]
    depth = sum(len(token.states) for token in tokens) / len(tokens)
    ponder = sum((token.cost() for token in tokens), ZERO) / len(tokens) if halts else ZERO
    return NaiveOutput(states, pool(states, config["pooling"]), depth, ponder, choices)


def _update_halting(p: Parameters, token: Token, threshold: float) -> None:
    """Evaluate the gate on the last state; a value that reaches the threshold only halts the token."""
    inner = gelu(p["halt.inner.weight"] @ token.last + p["halt.inner.bias"])
    hat = torch.softmax(p["halt.outer.weight"] @ inner, 0)[1]
    token.hats.append(hat)
    if float(sum(token.weights(), ZERO).detach()) >= threshold:
        token.hats.pop()
        token.halted = True


KeysAndValues = Sequence[Tensor]
"""Keys and values, with one row a source."""


def _project_kv(p: Parameters, config: dict[str, Any], states: Vectors) -> KeysAndValues:
    if config["norm"] == "pre":
        states = [layer_norm(p, "block.attention_norm", state) for state in states]
    return _keys_values(p, "block.attention", states)


def _keys_values(p: Parameters, at: str, sources: Vectors | Tensor) -> KeysAndValues:
    return [
        torch.stack([p[f"{at}.{sublayer}.weight"] @ source for source in sources])
        for sublayer in ("key", "value")
    ]


def _layer(
    p: Parameters,
    config: dict[str, Any],
    h: Tensor,
    t: int,
    keys_and_values: KeysAndValues,
    cross_kv: KeysAndValues | None,
    record: RoutingContext,
) -> Tensor:
    """Return the next state of the token at position `t`, given keys and values."""
    pre, sizes = config["norm"] == "pre", config["attention"]

    def sublayer(name: str, x: Tensor, function: Any) -> Tensor:
        norm = f"block.{name}_norm"
        if pre:
            return x + function(layer_norm(p, norm, x))
        return layer_norm(p, norm, x + function(x))

    x = sublayer(
        "attention", h, lambda z: _attention(p, "block.attention", sizes, z, keys_and_values, t, record)
    )
    if cross_kv is not None:
        x = sublayer("recall", x, lambda z: _attention(p, "block.recall", sizes, z, cross_kv, None, record))
    return sublayer("feedforward", x, lambda z: _experts(p, config["feedforward"], z, record))


def _experts(p: Parameters, sizes: dict[str, Any], x: Tensor, record: RoutingContext) -> Tensor:
    at, out = "block.feedforward", torch.zeros_like(x)
    for expert, gate in _route(p, at, sizes, x, record):
        inner = gelu(p[f"{at}.inner.weight"][expert] @ x + p[f"{at}.inner.bias"][expert])
        out = out + gate * (p[f"{at}.outer.weight"][expert] @ inner + p[f"{at}.outer.bias"][expert])
    return out


def _attention(
    p: Parameters,
    at: str,
    sizes: dict[str, Any],
    x: Tensor,
    keys_and_values: KeysAndValues,
    t: int | None,
    record: RoutingContext,
) -> Tensor:
    """Attend from a query at position `t` of the sources; None if there are no positions."""
    size, window, out = sizes["head_width"], sizes["window"], torch.zeros_like(x)
    keys, values = keys_and_values
    for expert, gate in _route(p, at, sizes, x, record):
        query = p[f"{at}.query.weight"][expert] @ x
        gathered = []
        for head in range(sizes["heads"]):
            columns = slice(head * size, (head + 1) * size)
            logits = keys[:, columns] @ query[columns]
            if t is not None:
                offsets = [max(-window, min(window, j - t)) + window for j in range(len(keys))]
                logits = logits + query[columns] @ p[f"{at}.offsets.weight"][head][:, offsets]
            weights = torch.softmax(logits / math.sqrt(size), 0)
            gathered.append(weights @ values[:, columns])
        out = out + gate * (p[f"{at}.output.weight"][expert] @ torch.cat(gathered))
    return out


def _route(
    p: Parameters, at: str, sizes: dict[str, Any], x: Tensor, record: RoutingContext
) -> list[tuple[int, Tensor]]:
    """Return the likeliest experts with their gates; a single expert needs no router."""
    if f"{at}.router.outer.weight" not in p:
        return [(0, ZERO + 1)]
    inner = torch.tanh(p[f"{at}.router.inner.weight"] @ x + p[f"{at}.router.inner.bias"])
    probabilities = list(torch.softmax(p[f"{at}.router.outer.weight"] @ inner, 0))
    chosen = sorted(range(len(probabilities)), key=lambda e: -float(probabilities[e].detach()))[
        : sizes["active"]
    ]
    if record.numbers is not None and sizes["sampled"]:
        chosen = chosen[: sizes["active"] - sizes["sampled"]]
        # Expert e gets an exponential time of rate p(e), so that e is first with probability p(e).
        numbers = record.numbers(at)
        times = {e: -math.log(numbers[e]) / float(q.detach()) for e, q in enumerate(probabilities)}
        drawn_experts = sorted(times.keys() - {*chosen}, key=times.__getitem__)
        chosen = chosen + drawn_experts[: sizes["sampled"]]
    record.choices.append(RoutingChoice(at, probabilities, chosen, record.weight))
    total = sum(probabilities[e] for e in chosen) + 1e-6
    return [(e, probabilities[e] / total) for e in chosen]


def _fairseq_sinusoid(position: int, width: int) -> Tensor:
    """Return sines, then cosines, then a zero for an odd width; positions start after that of padding."""
    step = math.log(10000) / (width // 2 - 1)
    angles = [(position + 2) * math.exp(-i * step) for i in range(width // 2)]
    values = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
    return torch.tensor(values + [0.0] * (width % 2), dtype=torch.float64)


def balance(choices: list[RoutingChoice], rule: str) -> Tensor | None:
    """Return the auxiliary cost of all tokens of a batch, summed over mixtures."""
    if rule == "none" or not choices:
        return None
    cost = _minus_information if rule == "mutual-information" else _switch
    mixtures = sorted({choice.mixture for choice in choices})
    return sum((cost([c for c in choices if c.mixture == name]) for name in mixtures), ZERO)


def _minus_information(choices: list[RoutingChoice]) -> Tensor:
    """Return -I(e; x) = -sum_x p(x) sum_e p(e | x) log(p(e | x) / p(e)), p(x) proportional to the weights."""
    total = sum((c.weight for c in choices), ZERO)
    experts = range(len(choices[0].probabilities))
    marginal = [sum((c.weight / total * c.probabilities[e] for c in choices), ZERO) for e in experts]
    information = ZERO
    for c in choices:
        gain = sum((q * torch.log(q / g) for q, g in zip(c.probabilities, marginal, strict=True)), ZERO)
        information = information + c.weight / total * gain
    return -information


def _switch(choices: list[RoutingChoice]) -> Tensor:
    """Return E sum_e f_e P_e over all routed tokens."""
    experts = len(choices[0].probabilities)
    picks = [e for c in choices for e in c.chosen]
    cost = ZERO
    for e in range(experts):
        mean = sum((c.probabilities[e] for c in choices), ZERO) / len(choices)
        cost = cost + picks.count(e) / len(picks) * mean
    return experts * cost
