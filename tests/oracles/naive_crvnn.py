"""The continuous recursive network for one sequence: sums and products over positions, one by one.

From Ray Chowdhury and Caragea, Modeling Hierarchical Structures with Continuous Recursive Neural Networks,
and On the Design Space Between Transformers and Recursive Neural Nets, Eq. 12-17. No shared code.
"""

import math
from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, Vectors, gelu, layer_norm
from tests.oracles.naive_universal import Naive

EPS = 1e-8
ZERO, ONE = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)


def run(p: Parameters, config: dict[str, Any], x: Tensor) -> Naive:
    """`x`: the n tokens of one sequence, without padding. The penalty is given as `ponder`."""
    if config["structure"] == "latent":
        return _latent(p, config, x)
    leaves = [begin(p, config, each) for each in x]
    width = x.shape[1]
    if config["structure"] == "balanced":
        levels = _balanced(p, config, leaves)
    else:
        before, levels = p["start.weight"], len(leaves)
        for position, leaf in enumerate(leaves):
            leaves[position] = before = compose(p, config, before, leaf)
    states = [state[:width] for state in leaves]
    return Naive(states, states[-1], levels, ZERO)


def _balanced(p: Parameters, config: dict[str, Any], leaves: list[Tensor]) -> int:
    """Leaves each root at the last of its tokens; the height."""

    def join(first: int, end: int) -> int:
        if end - first == 1:
            return 0
        middle = first + -(-(end - first) // 2)
        height = 1 + max(join(first, middle), join(middle, end))
        leaves[end - 1] = compose(p, config, leaves[middle - 1], leaves[end - 1])
        return height

    return join(0, len(leaves))


def _latent(p: Parameters, config: dict[str, Any], x: Tensor) -> Naive:
    n, width = x.shape
    states = [
        begin(p, config, each) for each in (p["boundaries.start.weight"], *x, p["boundaries.end.weight"])
    ]
    exist, took = [ONE] * (n + 2), [ZERO] * (n + 2)
    steps, finished = 0, False
    while steps < n and not finished:
        left, right = _left(exist, config["retriever"]), _right(exist, config["retriever"])
        seen = [state[:width] for state in states]
        scores = _scores(p, config, (seen, took), left, right)
        chosen = _chosen(config, scores, left, right)
        took = _near(left, chosen)
        beside = _near(left, states)
        states = [
            share * compose(p, config, one, other) + (1 - share) * other
            for share, one, other in zip(took, beside, states, strict=True)
        ]
        exist = [e * (1 - c) for e, c in zip(exist, chosen, strict=True)]
        steps += 1
        if config["halt"] is not None:
            finished = sum(float(e.detach()) > config["halt"]["threshold"] for e in exist[1:-1]) <= 1
    penalty = ZERO
    if config["halt"] is not None and config["halt"]["penalty"] and not finished:
        penalty = -torch.log(exist[n] / sum(e + EPS for e in exist[1:-1]) + EPS)
    seen = [state[:width] for state in states]
    return Naive(seen, seen[n], steps, penalty)


def _right(exist: Vectors, retriever: str) -> list[list[Tensor]]:
    """R_ij: how much j is the first that exists to the right of i."""
    size = len(exist)
    rows = [[ZERO] * size for _ in exist]
    for i in range(size):
        for j in range(i + 1, size):
            between = exist[i + 1 : j]
            if retriever == "product":
                none = ONE
                for each in between:
                    none = none * (1 - each)
                rows[i][j] = exist[j] * none
            elif float(sum([*between, exist[j]]).detach()) <= 1:
                rows[i][j] = exist[j]
            else:
                rest = 1 - sum(between, ZERO)
                rows[i][j] = rest if float(rest.detach()) > 0 else ZERO
    return rows


def _left(exist: Vectors, retriever: str) -> list[list[Tensor]]:
    mirrored = _right(list(exist)[::-1], retriever)
    return [row[::-1] for row in mirrored[::-1]]


def _near(weights: list[list[Tensor]], values: Vectors) -> list[Tensor]:
    return [sum(w * v for w, v in zip(row, values, strict=True)) for row in weights]


def _scores(
    p: Parameters,
    config: dict[str, Any],
    looks: tuple[Vectors, Vectors],
    left: list[list[Tensor]],
    right: list[list[Tensor]],
) -> list[Tensor]:
    seen, took = looks
    window, before, behind = [list(seen)], seen, seen
    for _ in range(config["window"] // 2):
        before, behind = _near(left, before), _near(right, behind)
        window = [before, *window, behind]
    scores = []
    for i in range(len(seen)):
        features = torch.cat([each[i] for each in window])
        if config["transition_features"]:
            mix = took[i] * p["scorer.taken.weight"] + (1 - took[i]) * p["scorer.untaken.weight"]
            features = torch.cat([features, mix])
        inner = _gelu(config, p["scorer.inner.weight"] @ features + p["scorer.inner.bias"])
        scores.append((p["scorer.outer.weight"] @ inner + p["scorer.outer.bias"])[0])
    return scores


def _chosen(
    config: dict[str, Any], scores: Vectors, left: list[list[Tensor]], right: list[list[Tensor]]
) -> list[Tensor]:
    """The modulated sigmoid; START, END and the last token are never taken up."""
    greatest = max(0.0, *(float(score.detach()) for score in scores))
    free = range(1, len(scores) - 2)
    here = [torch.exp(score - greatest) if i in free else ZERO for i, score in enumerate(scores)]
    lefts, rights = _near(left, here), _near(right, here)
    chosen = []
    for i, each in enumerate(here):
        terms = [each, torch.exp(-ONE * greatest)]
        if config["modulated"]:
            terms += [lefts[i], rights[i]]
        chosen.append(each / sum(term + EPS for term in terms))
    return chosen


def _gelu(config: dict[str, Any], x: Tensor) -> Tensor:
    if not config["tanh_gelu"]:
        return gelu(x)
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def begin(p: Parameters, config: dict[str, Any], x: Tensor) -> Tensor:
    out = p["cell.leaf.weight"] @ x + p["cell.leaf.bias"]
    if config["cell"] == "grc":
        return layer_norm(p, "cell.norm" if config["shared_norm"] else "cell.leaf_norm", out)
    width = x.shape[0]
    memory = torch.tanh(out[width:])
    return torch.cat([torch.sigmoid(out[:width]) * torch.tanh(memory), memory])


def compose(p: Parameters, config: dict[str, Any], left: Tensor, right: Tensor) -> Tensor:
    if config["cell"] == "lstm":
        width = left.shape[0] // 2
        both = torch.cat([left[:width], right[:width]])
        f1, f2, i, o, new = (p["cell.outer.weight"] @ both + p["cell.outer.bias"]).reshape(5, width)
        memory = torch.sigmoid(f1) * left[width:] + torch.sigmoid(f2) * right[width:]
        memory = memory + torch.sigmoid(i) * torch.tanh(new)
        return torch.cat([torch.sigmoid(o) * torch.tanh(memory), memory])
    inner = p["cell.inner.weight"] @ torch.cat([left, right]) + p["cell.inner.bias"]
    inner = torch.relu(inner) if config["activation"] == "relu" else _gelu(config, inner)
    gates = (p["cell.outer.weight"] @ inner + p["cell.outer.bias"]).reshape(4, left.shape[0])
    f1, f2, i = torch.sigmoid(gates[:3])
    return layer_norm(p, "cell.norm", f1 * left + f2 * right + i * gates[3])
