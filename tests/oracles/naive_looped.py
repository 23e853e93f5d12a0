"""The looped Transformer for one sequence, from s. 4 of Fan et al., Looped Transformers for Length
Generalization: z_1 = M(e), z_t = M(z_{t-1} + e), and Eq. 2 for when to stop. No batch, no shared code.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, Vectors, feedforward, layer_norm


def trajectory(p: Parameters, config: dict[str, Any], x: Tensor, loops: int) -> list[list[Tensor]]:
    """z_1 .. z_loops, as they are read, of the n tokens of one sequence without padding."""
    embedded, z, read = list(x), None, []
    for t in range(1, loops + 1):
        if z is None:
            z = embedded
        elif config["injection"]:
            z = [state + e for state, e in zip(z, embedded, strict=True)]
        z = _block(p, config, f"bodies.{t - 1 if config['recurrence'] == 'unshared' else 0}", z)
        last = config["final_norm"] == "end"
        read.append([layer_norm(p, "final_norm", state) for state in z] if last else z)
    return read


def _block(p: Parameters, config: dict[str, Any], at: str, x: Vectors) -> list[Tensor]:
    """M: GPT-2 layers without positional encoding."""
    h = list(x)
    for number in range(config["layers"]):
        layer = f"{at}.layers.{number}"
        seen = [layer_norm(p, f"{layer}.attention_norm", each) for each in h]
        h = [before + found for before, found in zip(h, _attention(p, layer, seen, config), strict=True)]
        h = [
            each + feedforward(p, f"{layer}.feedforward", layer_norm(p, f"{layer}.feedforward_norm", each))
            for each in h
        ]
    return [layer_norm(p, f"{at}.norm", each) for each in h] if config["final_norm"] == "loop" else h


def _attention(p: Parameters, layer: str, x: Vectors, config: dict[str, Any]) -> list[Tensor]:
    """Token t looks at tokens 1 .. t by content alone."""
    q, k, v = (
        [p[f"{layer}.attention.{part}.weight"] @ each for each in x] for part in ("query", "key", "value")
    )
    size = q[0].shape[0] // config["heads"]
    out = []
    for t, query in enumerate(q):
        heads = []
        for head in range(config["heads"]):
            cut = slice(head * size, (head + 1) * size)
            logits = [query[cut] @ k[u][cut] / math.sqrt(size) for u in range(t + 1)]
            weights = torch.softmax(torch.stack(logits), 0)
            heads.append(sum(weights[u] * v[u][cut] for u in range(t + 1)))
        out.append(p[f"{layer}.attention.output.weight"] @ torch.cat(heads))
    return out


def probabilities(p: Parameters, state: Tensor) -> Tensor:
    """Of the classes at one position; two share one logit, which speaks for the second."""
    hidden = torch.relu(p["readout.inner.weight"] @ state + p["readout.inner.bias"])
    logits = p["readout.outer.weight"] @ hidden + p["readout.outer.bias"]
    if len(logits) == 1:
        return torch.stack([1 - torch.sigmoid(logits[0]), torch.sigmoid(logits[0])])
    return torch.softmax(logits, 0)


def confidence_loss(p: Parameters, states: Vectors, asked: Sequence[int]) -> Tensor:
    """L(f_t(x), argmax f_t(x)): cross-entropy against the model's own greedy answer."""
    losses = []
    for position in asked:
        found = probabilities(p, states[position])
        losses.append(-torch.log(found[int(found.argmax())]))
    return sum(losses) / len(losses)


def chosen_step(losses: Sequence[Sequence[Tensor]]) -> int:
    """Eq. 2 over B sequences, each with its losses at steps 1 .. T_max."""
    means = [sum(float(each[t].detach()) for each in losses) / len(losses) for t in range(len(losses[0]))]
    return 1 + min(range(len(means)), key=lambda t: means[t])
