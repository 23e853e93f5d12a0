"""The continuous recursive network for one sequence: sums and products over positions, term by term.

From Ray Chowdhury and Caragea, Modeling Hierarchical Structures with Continuous Recursive Neural Networks,
and On the Design Space Between Transformers and Recursive Neural Nets, Eq. 12-17. The code does not use
the product.
"""

import math
from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, Vectors, gelu, layer_norm
from tests.oracles.naive_universal import NaiveOutput

EPS = 1e-8
ZERO, ONE = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)


def run(p: Parameters, config: dict[str, Any], x: Tensor) -> NaiveOutput:
    """Run the model on `x`, the tokens of one sequence without padding; return the penalty as `ponder`."""
    if config["structure"] == "latent":
        return _latent(p, config, x)
    leaves = [leaf_state(p, config, token) for token in x]
    width = x.shape[1]
    if config["structure"] == "balanced":
        levels = _balanced(p, config, leaves)
    else:
        state_before, levels = p["start.weight"], len(leaves)
        for position, leaf in enumerate(leaves):
            leaves[position] = state_before = compose(p, config, state_before, leaf)
    states = [state[:width] for state in leaves]
    return NaiveOutput(states, states[-1], levels, ZERO)


def _balanced(p: Parameters, config: dict[str, Any], leaves: list[Tensor]) -> int:
    """Write the root of each subtree to the position of its last token; return the height."""

    def join_span(first: int, end: int) -> int:
        if end - first == 1:
            return 0
        middle = first + -(-(end - first) // 2)
        height = 1 + max(join_span(first, middle), join_span(middle, end))
        leaves[end - 1] = compose(p, config, leaves[middle - 1], leaves[end - 1])
        return height

    return join_span(0, len(leaves))


def _latent(p: Parameters, config: dict[str, Any], x: Tensor) -> NaiveOutput:
    n, width = x.shape
    states = [
        leaf_state(p, config, token)
        for token in (p["boundaries.start.weight"], *x, p["boundaries.end.weight"])
    ]
    exist, taken = [ONE] * (n + 2), [ZERO] * (n + 2)
    steps, finished = 0, False
    while steps < n and not finished:
        left, right = _left_weights(exist, config["retriever"]), _right_weights(exist, config["retriever"])
        visible = [state[:width] for state in states]
        scores = _scores(p, config, (visible, taken), left, right)
        selected = _select(config, scores, left, right)
        taken = _gather(left, selected)
        left_states = _gather(left, states)
        states = [
            share * compose(p, config, left_state, state_) + (1 - share) * state_
            for share, left_state, state_ in zip(taken, left_states, states, strict=True)
        ]
        exist = [e * (1 - c) for e, c in zip(exist, selected, strict=True)]
        steps += 1
        if config["halt"] is not None:
            finished = sum(float(e.detach()) > config["halt"]["threshold"] for e in exist[1:-1]) <= 1
    penalty = ZERO
    if config["halt"] is not None and config["halt"]["penalty"] and not finished:
        penalty = -torch.log(exist[n] / sum(e + EPS for e in exist[1:-1]) + EPS)
    visible = [state[:width] for state in states]
    return NaiveOutput(visible, visible[n], steps, penalty)


def _right_weights(exist: Vectors, retriever: str) -> list[list[Tensor]]:
    """Return R_ij: the probability that j is the first existing position to the right of i."""
    size = len(exist)
    rows = [[ZERO] * size for _ in exist]
    for i in range(size):
        for j in range(i + 1, size):
            between = exist[i + 1 : j]
            if retriever == "product":
                nothing_between = ONE
                for existence in between:
                    nothing_between = nothing_between * (1 - existence)
                rows[i][j] = exist[j] * nothing_between
            elif float(sum([*between, exist[j]]).detach()) <= 1:
                rows[i][j] = exist[j]
            else:
                rest = 1 - sum(between, ZERO)
                rows[i][j] = rest if float(rest.detach()) > 0 else ZERO
    return rows


def _left_weights(exist: Vectors, retriever: str) -> list[list[Tensor]]:
    mirrored = _right_weights(list(exist)[::-1], retriever)
    return [row[::-1] for row in mirrored[::-1]]


def _gather(weights: list[list[Tensor]], values: Vectors) -> list[Tensor]:
    return [sum(w * v for w, v in zip(row, values, strict=True)) for row in weights]


def _scores(
    p: Parameters,
    config: dict[str, Any],
    states_and_taken: tuple[Vectors, Vectors],
    left: list[list[Tensor]],
    right: list[list[Tensor]],
) -> list[Tensor]:
    visible, taken = states_and_taken
    window, left_states, right_states = [list(visible)], visible, visible
    for _ in range(config["window"] // 2):
        left_states, right_states = _gather(left, left_states), _gather(right, right_states)
        window = [left_states, *window, right_states]
    scores = []
    for i in range(len(visible)):
        features = torch.cat([neighbours[i] for neighbours in window])
        if config["transition_features"]:
            mix = taken[i] * p["scorer.taken.weight"] + (1 - taken[i]) * p["scorer.untaken.weight"]
            features = torch.cat([features, mix])
        inner = _gelu(config, p["scorer.inner.weight"] @ features + p["scorer.inner.bias"])
        scores.append((p["scorer.outer.weight"] @ inner + p["scorer.outer.bias"])[0])
    return scores


def _select(
    config: dict[str, Any], scores: Vectors, left: list[list[Tensor]], right: list[list[Tensor]]
) -> list[Tensor]:
    """Apply the modulated sigmoid; START, END and the last token are never selected."""
    greatest = max(0.0, *(float(score.detach()) for score in scores))
    free = range(1, len(scores) - 2)
    exponentials = [torch.exp(score - greatest) if i in free else ZERO for i, score in enumerate(scores)]
    lefts, rights = _gather(left, exponentials), _gather(right, exponentials)
    selected = []
    for i, value in enumerate(exponentials):
        terms = [value, torch.exp(-ONE * greatest)]
        if config["modulated"]:
            terms += [lefts[i], rights[i]]
        selected.append(value / sum(term + EPS for term in terms))
    return selected


def _gelu(config: dict[str, Any], x: Tensor) -> Tensor:
    if not config["tanh_gelu"]:
        return gelu(x)
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def leaf_state(p: Parameters, config: dict[str, Any], x: Tensor) -> Tensor:
    out = p["cell.leaf.weight"] @ x + p["cell.leaf.bias"]
    if config["cell"] == "grc":
        return layer_norm(p, "cell.norm" if config["shared_norm"] else "cell.leaf_norm", out)
    width = x.shape[0]
    memory = torch.tanh(out[width:])
    return torch.cat([torch.sigmoid(out[:width]) * torch.tanh(memory), memory])


def compose(p: Parameters, config: dict[str, Any], left: Tensor, right: Tensor) -> Tensor:
    if config["cell"] == "lstm":
        width = left.shape[0] // 2
        hidden_states = torch.cat([left[:width], right[:width]])
        f1, f2, i, o, new = (p["cell.outer.weight"] @ hidden_states + p["cell.outer.bias"]).reshape(5, width)
        memory = torch.sigmoid(f1) * left[width:] + torch.sigmoid(f2) * right[width:]
        memory = memory + torch.sigmoid(i) * torch.tanh(new)
        return torch.cat([torch.sigmoid(o) * torch.tanh(memory), memory])
    inner = p["cell.inner.weight"] @ torch.cat([left, right]) + p["cell.inner.bias"]
    inner = torch.relu(inner) if config["activation"] == "relu" else _gelu(config, inner)
    gates = (p["cell.outer.weight"] @ inner + p["cell.outer.bias"]).reshape(4, left.shape[0])
    f1, f2, i = torch.sigmoid(gates[:3])
    return layer_norm(p, "cell.norm", f1 * left + f2 * right + i * gates[3])
