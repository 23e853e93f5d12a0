"""The looped Transformer for one sequence: z_1 = M(e), z_t = M(z_{t-1} + e), and Eq. 2 for the last loop.

From s. 4 of Fan et al., Looped Transformers for Length Generalization. No batches, no code of the product.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, Vectors, feedforward, layer_norm


def trajectory(p: Parameters, config: dict[str, Any], x: Tensor, loops: int) -> list[list[Tensor]]:
    """Return z_1 .. z_loops, normalised for the readout, of the tokens of one sequence without padding."""
    embedded, z, readable = list(x), None, []
    for t in range(1, loops + 1):
        if z is None:
            z = embedded
        elif config["injection"]:
            z = [state + e for state, e in zip(z, embedded, strict=True)]
        z = _block(p, config, f"bodies.{t - 1 if config['recurrence'] == 'unshared' else 0}", z)
        normalise_at_end = config["final_norm"] == "end"
        readable.append([layer_norm(p, "final_norm", state) for state in z] if normalise_at_end else z)
    return readable


def _block(p: Parameters, config: dict[str, Any], at: str, x: Vectors) -> list[Tensor]:
    """Apply M: GPT-2 layers without positional encoding."""
    h = list(x)
    for number in range(config["layers"]):
        layer = f"{at}.layers.{number}"
        normalised = [layer_norm(p, f"{layer}.attention_norm", state) for state in h]
        h = [
            state_before + update
            for state_before, update in zip(h, _attention(p, layer, normalised, config), strict=True)
        ]
        h = [
            state + feedforward(p, f"{layer}.feedforward", layer_norm(p, f"{layer}.feedforward_norm", state))
            for state in h
        ]
    return [layer_norm(p, f"{at}.norm", state) for state in h] if config["final_norm"] == "loop" else h


def _attention(p: Parameters, layer: str, x: Vectors, config: dict[str, Any]) -> list[Tensor]:
    """Attend from token t to tokens 1 .. t, by content alone."""
    q, k, v = (
        [p[f"{layer}.attention.{part}.weight"] @ vector for vector in x] for part in ("query", "key", "value")
    )
    size = q[0].shape[0] // config["heads"]
    out = []
    for t, query in enumerate(q):
        heads = []
        for head in range(config["heads"]):
            columns = slice(head * size, (head + 1) * size)
            logits = [query[columns] @ k[u][columns] / math.sqrt(size) for u in range(t + 1)]
            weights = torch.softmax(torch.stack(logits), 0)
            heads.append(sum(weights[u] * v[u][columns] for u in range(t + 1)))
        out.append(p[f"{layer}.attention.output.weight"] @ torch.cat(heads))
    return out


def probabilities(p: Parameters, state: Tensor) -> Tensor:
    """Return the probabilities of the classes at one position; a single logit belongs to the second class."""
    hidden = torch.relu(p["readout.inner.weight"] @ state + p["readout.inner.bias"])
    logits = p["readout.outer.weight"] @ hidden + p["readout.outer.bias"]
    if len(logits) == 1:
        return torch.stack([1 - torch.sigmoid(logits[0]), torch.sigmoid(logits[0])])
    return torch.softmax(logits, 0)


def confidence_loss(p: Parameters, states: Vectors, positions: Sequence[int]) -> Tensor:
    """Return L(f_t(x), argmax f_t(x)): cross-entropy with the model's own greedy answer as target."""
    losses = []
    for position in positions:
        probability = probabilities(p, states[position])
        losses.append(-torch.log(probability[int(probability.argmax())]))
    return sum(losses) / len(losses)


def most_confident_step(losses: Sequence[Sequence[Tensor]]) -> int:
    """Apply Eq. 2 to B sequences, given the losses of each at steps 1 .. T_max."""
    means = [
        sum(float(sequence_losses[t].detach()) for sequence_losses in losses) / len(losses)
        for t in range(len(losses[0]))
    ]
    return 1 + min(range(len(means)), key=lambda t: means[t])
