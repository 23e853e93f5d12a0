"""The Neural Data Router for one sequence: products of match probabilities, factor by factor, no logarithms.

From Csordas, Irie and Schmidhuber, The Neural Data Router, and Ray Chowdhury and Caragea, On the Design Space
Between Transformers and Recursive Neural Nets, Eq. 4-10. The code shares nothing with the product.
"""

from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, Vectors, layer_norm, pool, sinusoid
from tests.oracles.naive_universal import NaiveOutput


def run(p: Parameters, config: dict[str, Any], x: Tensor) -> NaiveOutput:
    """Run the model in evaluation on `x`, the tokens of one sequence without padding."""
    h = [p["boundaries.start.weight"], *x, p["boundaries.end.weight"]]
    for _ in range(config["test_layers"]):
        h = _layer(p, config, h)
    zero = torch.zeros((), dtype=torch.float64)
    return NaiveOutput(h, pool(h, config["pooling"]), config["test_layers"], zero)


def _layer(p: Parameters, config: dict[str, Any], h: Vectors) -> list[Tensor]:
    out = []
    for state_before, update in zip(h, _attention(p, config, h), strict=True):
        x = layer_norm(p, "layer.attention_norm", state_before + update)
        proposed = _feedforward(p, "layer.feedforward", x)
        if config["gate"]:
            gate = torch.sigmoid(_feedforward(p, "layer.gate", x))
            tanh = config["proposal"] == "tanh"
            new = torch.tanh(proposed) if tanh else layer_norm(p, "layer.feedforward_norm", proposed)
            out.append(gate * new + (1 - gate) * state_before)
        else:
            out.append(layer_norm(p, "layer.feedforward_norm", x + proposed))
    return out


def _feedforward(p: Parameters, at: str, x: Tensor) -> Tensor:
    inner = torch.relu(p[f"{at}.inner.weight"] @ x + p[f"{at}.inner.bias"])
    return p[f"{at}.outer.weight"] @ inner + p[f"{at}.outer.bias"]


def _attention(p: Parameters, config: dict[str, Any], h: Vectors) -> list[Tensor]:
    at, heads = "layer.attention", config["heads"]
    attention_weights = geometric_weights if config["geometric"] else softmax_weights
    head_outputs = [[] for _ in h]
    size = p[f"{at}.query.weight"].shape[0] // heads
    for head in range(heads):
        columns = slice(head * size, (head + 1) * size)
        q, k, v = ([p[f"{at}.{part}.weight"][columns] @ x for x in h] for part in ("query", "key", "value"))
        for i, row in enumerate(head_outputs):
            weights = attention_weights(p, config, h, (q, k), head, i)
            row.append(sum(weights[j] * v[j] for j in range(len(h))))
    return [p[f"{at}.output.weight"] @ torch.cat(row) for row in head_outputs]


def geometric_weights(
    p: Parameters, config: dict[str, Any], h: Vectors, qk: tuple[Vectors, Vectors], head: int, i: int
) -> list[Tensor]:
    """Return row i of A, Eq. 5-6, with scale, biases and direction sensitivity."""
    at, (q, k) = "layer.attention", qk
    direction_logits = [torch.zeros((), dtype=torch.float64)] * 2
    if config["direction"]:
        weight, bias = p[f"{at}.direction.weight"], p[f"{at}.direction.bias"]
        scale = p[f"{at}.direction_scale.weight"][0]
        direction_logits = [
            (weight[2 * head + side] @ h[i] + bias[2 * head + side]) * scale for side in range(2)
        ]
    match = {}
    for j in range(len(h)):
        if j != i:
            content = (q[i] + p[f"{at}.content_bias.weight"][head]) @ k[j] * p[f"{at}.scale.weight"][0]
            match[j] = torch.sigmoid(content + direction_logits[j > i] + p[f"{at}.bias.weight"][0])
    row = [torch.zeros((), dtype=torch.float64) for _ in h]
    for j, probability in match.items():
        row[j] = probability
        for other, other_probability in match.items():
            is_nearer = abs(i - other) < abs(i - j) or (j < i and abs(i - other) == abs(i - j))
            if other != j and is_nearer:
                row[j] = row[j] * (1 - other_probability)
    return [weight_ / sum(row) for weight_ in row] if config["normalise_rows"] else row


def softmax_weights(
    p: Parameters, config: dict[str, Any], h: Vectors, qk: tuple[Vectors, Vectors], head: int, i: int
) -> list[Tensor]:
    """Apply softmax to content and position logits; the gate weighs relative against absolute positions."""
    at, (q, k) = "layer.attention", qk
    size = q[0].shape[0]
    table = p[f"{at}.position.weight"][head * size : (head + 1) * size]
    gate = torch.sigmoid(p[f"{at}.relative.weight"][head] @ h[i] + p[f"{at}.relative.bias"][head])
    logits = []
    for j in range(len(h)):
        content = (q[i] + p[f"{at}.content_bias.weight"][head]) @ k[j]
        biased_query = q[i] + p[f"{at}.position_bias.weight"][head]
        relative_logit, absolute_logit = (
            biased_query @ (table @ sinusoid(offset, h[0].shape[0])) for offset in (j - i, j)
        )
        logits.append(
            (content + gate * relative_logit + (1 - gate) * absolute_logit) * p[f"{at}.scale.weight"][0]
        )
    return list(torch.softmax(torch.stack(logits), 0))
