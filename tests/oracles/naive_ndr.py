"""The Neural Data Router for one sequence: match probabilities multiplied one by one, no logarithms.

From Csordas, Irie and Schmidhuber, The Neural Data Router, and Ray Chowdhury and Caragea, On the Design Space
Between Transformers and Recursive Neural Nets, Eq. 4-10. No shared code.
"""

import math
from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, Vectors, layer_norm, pooled
from tests.oracles.naive_universal import Naive


def run(p: Parameters, config: dict[str, Any], x: Tensor) -> Naive:
    """`x`: the n tokens of one sequence, without padding; as evaluated, not as trained."""
    h = [p["boundaries.start.weight"], *x, p["boundaries.end.weight"]]
    for _ in range(config["test_layers"]):
        h = _layer(p, config, h)
    zero = torch.zeros((), dtype=torch.float64)
    return Naive(h, pooled(h, config["pooling"]), config["test_layers"], zero)


def _layer(p: Parameters, config: dict[str, Any], h: Vectors) -> list[Tensor]:
    out = []
    for before, found in zip(h, _attention(p, config, h), strict=True):
        x = layer_norm(p, "layer.attention_norm", before + found)
        proposed = _feedforward(p, "layer.feedforward", x)
        if config["gate"]:
            gate = torch.sigmoid(_feedforward(p, "layer.gate", x))
            tanh = config["proposal"] == "tanh"
            new = torch.tanh(proposed) if tanh else layer_norm(p, "layer.feedforward_norm", proposed)
            out.append(gate * new + (1 - gate) * before)
        else:
            out.append(layer_norm(p, "layer.feedforward_norm", x + proposed))
    return out


def _feedforward(p: Parameters, at: str, x: Tensor) -> Tensor:
    inner = torch.relu(p[f"{at}.inner.weight"] @ x + p[f"{at}.inner.bias"])
    return p[f"{at}.outer.weight"] @ inner + p[f"{at}.outer.bias"]


def _attention(p: Parameters, config: dict[str, Any], h: Vectors) -> list[Tensor]:
    at, heads = "layer.attention", config["heads"]
    weigh = geometric if config["geometric"] else relative
    found = [[] for _ in h]
    size = p[f"{at}.query.weight"].shape[0] // heads
    for head in range(heads):
        cut = slice(head * size, (head + 1) * size)
        q, k, v = ([p[f"{at}.{part}.weight"][cut] @ x for x in h] for part in ("query", "key", "value"))
        for i, row in enumerate(found):
            weights = weigh(p, config, h, (q, k), head, i)
            row.append(sum(weights[j] * v[j] for j in range(len(h))))
    return [p[f"{at}.output.weight"] @ torch.cat(row) for row in found]


def geometric(
    p: Parameters, config: dict[str, Any], h: Vectors, qk: tuple[Vectors, Vectors], head: int, i: int
) -> list[Tensor]:
    """Row i of A, Eq. 5-6, with scale, biases and direction sensitivity."""
    at, (q, k) = "layer.attention", qk
    sides = [torch.zeros((), dtype=torch.float64)] * 2
    if config["direction"]:
        weight, bias = p[f"{at}.direction.weight"], p[f"{at}.direction.bias"]
        scale = p[f"{at}.direction_scale.weight"][0]
        sides = [(weight[2 * head + side] @ h[i] + bias[2 * head + side]) * scale for side in range(2)]
    match = {}
    for j in range(len(h)):
        if j != i:
            content = (q[i] + p[f"{at}.content_bias.weight"][head]) @ k[j] * p[f"{at}.scale.weight"][0]
            match[j] = torch.sigmoid(content + sides[j > i] + p[f"{at}.bias.weight"][0])
    row = [torch.zeros((), dtype=torch.float64) for _ in h]
    for j, found in match.items():
        row[j] = found
        for other, earlier in match.items():
            nearer = abs(i - other) < abs(i - j) or (j < i and abs(i - other) == abs(i - j))
            if other != j and nearer:
                row[j] = row[j] * (1 - earlier)
    return [each / sum(row) for each in row] if config["normalise_rows"] else row


def relative(
    p: Parameters, config: dict[str, Any], h: Vectors, qk: tuple[Vectors, Vectors], head: int, i: int
) -> list[Tensor]:
    """Softmax over content and positions, relative by the gate's share and absolute by the rest."""
    at, (q, k) = "layer.attention", qk
    size = q[0].shape[0]
    table = p[f"{at}.position.weight"][head * size : (head + 1) * size]
    gate = torch.sigmoid(p[f"{at}.relative.weight"][head] @ h[i] + p[f"{at}.relative.bias"][head])
    logits = []
    for j in range(len(h)):
        content = (q[i] + p[f"{at}.content_bias.weight"][head]) @ k[j]
        asking = q[i] + p[f"{at}.position_bias.weight"][head]
        near, far = (asking @ (table @ _sinusoid(where, h[0].shape[0])) for where in (j - i, j))
        logits.append((content + gate * near + (1 - gate) * far) * p[f"{at}.scale.weight"][0])
    return list(torch.softmax(torch.stack(logits), 0))


def _sinusoid(position: int, width: int) -> Tensor:
    values = []
    for c in range(width):
        angle = position / 10000 ** (2 * (c // 2) / width)
        values.append(math.cos(angle) if c % 2 else math.sin(angle))
    return torch.tensor(values, dtype=torch.float64)
