"""The Sparse Universal Transformer for one sequence, token by token and expert by expert.

From Tan et al., Sparse Universal Transformer, s. 3 and Alg. 1 in the order of their released code: the gate
looks at h_{l-1}, then the threshold is tested, then layer l is run. No batch, no sorting, no shared code.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, Vectors, gelu, layer_norm, pooled

ZERO = torch.zeros((), dtype=torch.float64)


@dataclass
class Choice:
    """One token at one router in one layer."""

    mixture: str
    probabilities: list[Tensor]
    chosen: list[int]
    weight: Tensor
    """Probability that the token has not halted."""


@dataclass
class Record:
    """For one token in one layer: where its choices go, with what weight, and how they are drawn."""

    choices: list[Choice]
    weight: Tensor
    numbers: Callable[[str], list[float]] | None


@dataclass
class Token:
    """The history of one token: states h_1 .. h_K and, from h_1 on, what halting said of them."""

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
        left = ZERO + 1
        for hat in self.hats[:steps]:
            left = left * (1 - hat)
        return left

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
class Naive:
    """What one sequence comes to."""

    states: list[Tensor]
    pooled: Tensor
    depth: float
    ponder: Tensor
    choices: list[Choice]


Noise = Callable[[str, int, int], list[float]]
"""In training: a number between 0 and 1 for each expert of a mixture, in a layer and at a token."""


def encode(p: Parameters, config: dict[str, Any], x: Tensor, noise: Noise | None = None) -> Naive:
    """`x`: the n tokens of one sequence, without padding; `config`: full settings of the model."""
    scaled = [each * math.sqrt(len(each)) for each in x]
    if not config["causal"]:
        scaled = [p["boundaries.start.weight"], *scaled, p["boundaries.end.weight"]]
    return _think(p, config, scaled, noise=noise)


def decode(
    p: Parameters, config: dict[str, Any], y: Tensor, memory: Tensor, noise: Noise | None = None
) -> Naive:
    """`y`, `memory`: what was written so far and the states of the source, without padding."""
    scaled = [each * math.sqrt(len(each)) for each in y]
    return _think(p, config | {"causal": True, "pooling": "end"}, scaled, memory, noise)


def _think(
    p: Parameters,
    config: dict[str, Any],
    x: Vectors,
    memory: Tensor | None = None,
    noise: Noise | None = None,
) -> Naive:
    if config["absolute_positions"]:
        code = _sinusoid if config["position_layout"] == "alternating" else _fairseq_sinusoid
        x = [each + code(t, len(each)) for t, each in enumerate(x)]
    tokens = [Token(each) for each in x]
    cross_kv = None if memory is None else _keys_values(p, "block.recall", memory)
    choices: list[Choice] = []
    halts = config["halt"] is not None
    for step in range(1, config["max_layers"] + 1):
        shown = _offer(p, config, [token.mixture() if halts else token.last for token in tokens])
        for token in tokens:
            if halts and step > 1 and not token.halted:
                _consult(p, token, config["halt"]["threshold"])
        new = {}
        for t, token in enumerate(tokens):
            if not token.halted:
                visible = [each[: t + 1] if config["causal"] else each for each in shown]
                weigh = token.survival() if halts else ZERO + 1
                record = Record(choices, weigh, noise and partial(noise, layer=step, token=t))
                new[t] = _layer(p, config, token.last, t, visible, cross_kv, record)
        for t, state in new.items():
            tokens[t].states.append(state)
    states = [token.mixture() if halts else token.last for token in tokens]
    if config["norm"] == "pre":
        states = [layer_norm(p, "final_norm.norm", state) for state in states]
    depth = sum(len(token.states) for token in tokens) / len(tokens)
    ponder = sum((token.cost() for token in tokens), ZERO) / len(tokens) if halts else ZERO
    return Naive(states, pooled(states, config["pooling"]), depth, ponder, choices)


def _consult(p: Parameters, token: Token, threshold: float) -> None:
    """Ask about the last state; the answer that reaches the threshold halts and changes nothing else."""
    inner = gelu(p["halt.inner.weight"] @ token.last + p["halt.inner.bias"])
    hat = torch.softmax(p["halt.outer.weight"] @ inner, 0)[1]
    token.hats.append(hat)
    if float(sum(token.weights(), ZERO).detach()) >= threshold:
        token.hats.pop()
        token.halted = True


Seen = Sequence[Tensor]
"""Keys and values, one a row."""


def _offer(p: Parameters, config: dict[str, Any], states: Vectors) -> Seen:
    if config["norm"] == "pre":
        states = [layer_norm(p, "block.attention_norm", state) for state in states]
    return _keys_values(p, "block.attention", states)


def _keys_values(p: Parameters, at: str, sources: Vectors | Tensor) -> Seen:
    return [
        torch.stack([p[f"{at}.{part}.weight"] @ source for source in sources]) for part in ("key", "value")
    ]


def _layer(
    p: Parameters,
    config: dict[str, Any],
    h: Tensor,
    t: int,
    shown: Seen,
    cross_kv: Seen | None,
    record: Record,
) -> Tensor:
    """The next state of the token at position `t`, which may look at `shown` and `cross_kv`."""
    pre, sizes = config["norm"] == "pre", config["attention"]

    def part(name: str, x: Tensor, made: Any) -> Tensor:
        norm = f"block.{name}_norm"
        if pre:
            return x + made(layer_norm(p, norm, x))
        return layer_norm(p, norm, x + made(x))

    x = part("attention", h, lambda z: _attention(p, "block.attention", sizes, z, shown, t, record))
    if cross_kv is not None:
        x = part("recall", x, lambda z: _attention(p, "block.recall", sizes, z, cross_kv, None, record))
    return part("feedforward", x, lambda z: _experts(p, config["feedforward"], z, record))


def _experts(p: Parameters, sizes: dict[str, Any], x: Tensor, record: Record) -> Tensor:
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
    seen: Seen,
    t: int | None,
    record: Record,
) -> Tensor:
    """`t`: the position of the query among the sources, None where there are no positions."""
    size, window, out = sizes["head_width"], sizes["window"], torch.zeros_like(x)
    keys, values = seen
    for expert, gate in _route(p, at, sizes, x, record):
        query = p[f"{at}.query.weight"][expert] @ x
        gathered = []
        for head in range(sizes["heads"]):
            cut = slice(head * size, (head + 1) * size)
            logits = keys[:, cut] @ query[cut]
            if t is not None:
                offsets = [max(-window, min(window, j - t)) + window for j in range(len(keys))]
                logits = logits + query[cut] @ p[f"{at}.offsets.weight"][head][:, offsets]
            weights = torch.softmax(logits / math.sqrt(size), 0)
            gathered.append(weights @ values[:, cut])
        out = out + gate * (p[f"{at}.output.weight"][expert] @ torch.cat(gathered))
    return out


def _route(
    p: Parameters, at: str, sizes: dict[str, Any], x: Tensor, record: Record
) -> list[tuple[int, Tensor]]:
    """The likeliest experts with their gates; a sole expert needs no router."""
    if f"{at}.router.outer.weight" not in p:
        return [(0, ZERO + 1)]
    inner = torch.tanh(p[f"{at}.router.inner.weight"] @ x + p[f"{at}.router.inner.bias"])
    likely = list(torch.softmax(p[f"{at}.router.outer.weight"] @ inner, 0))
    chosen = sorted(range(len(likely)), key=lambda e: -float(likely[e].detach()))[: sizes["active"]]
    if record.numbers is not None and sizes["sampled"]:
        chosen = chosen[: sizes["active"] - sizes["sampled"]]
        # A race: expert e needs an exponential time of rate p(e), so that e is first with probability p(e).
        numbers = record.numbers(at)
        times = {e: -math.log(numbers[e]) / float(q.detach()) for e, q in enumerate(likely)}
        others = sorted(times.keys() - {*chosen}, key=times.__getitem__)
        chosen = chosen + others[: sizes["sampled"]]
    record.choices.append(Choice(at, likely, chosen, record.weight))
    total = sum(likely[e] for e in chosen) + 1e-6
    return [(e, likely[e] / total) for e in chosen]


def _sinusoid(position: int, width: int) -> Tensor:
    angles = [position / 10000 ** (2 * (c // 2) / width) for c in range(width)]
    values = [math.cos(angle) if c % 2 else math.sin(angle) for c, angle in enumerate(angles)]
    return torch.tensor(values, dtype=torch.float64)


def _fairseq_sinusoid(position: int, width: int) -> Tensor:
    """Sines, then cosines, then zero if there is one dimension more; numbers begin behind that of padding."""
    step = math.log(10000) / (width // 2 - 1)
    angles = [(position + 2) * math.exp(-i * step) for i in range(width // 2)]
    values = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
    return torch.tensor(values + [0.0] * (width % 2), dtype=torch.float64)


def balance(choices: list[Choice], how: str) -> Tensor | None:
    """The auxiliary cost of all tokens of a batch, summed over mixtures."""
    if how == "none" or not choices:
        return None
    cost = _minus_information if how == "mutual-information" else _switch
    mixtures = sorted({choice.mixture for choice in choices})
    return sum((cost([c for c in choices if c.mixture == name]) for name in mixtures), ZERO)


def _minus_information(choices: list[Choice]) -> Tensor:
    """-I(e; x) = -sum_x p(x) sum_e p(e | x) log(p(e | x) / p(e)), p(x) in proportion to the weights."""
    total = sum((c.weight for c in choices), ZERO)
    experts = range(len(choices[0].probabilities))
    marginal = [sum((c.weight / total * c.probabilities[e] for c in choices), ZERO) for e in experts]
    information = ZERO
    for c in choices:
        gain = sum((q * torch.log(q / g) for q, g in zip(c.probabilities, marginal, strict=True)), ZERO)
        information = information + c.weight / total * gain
    return -information


def _switch(choices: list[Choice]) -> Tensor:
    """E sum_e f_e P_e over all tokens that were routed."""
    experts = len(choices[0].probabilities)
    picks = [e for c in choices for e in c.chosen]
    cost = ZERO
    for e in range(experts):
        mean = sum((c.probabilities[e] for c in choices), ZERO) / len(choices)
        cost = cost + picks.count(e) / len(picks) * mean
    return experts * cost
