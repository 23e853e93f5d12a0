"""One Transformer block for one sequence, written from the equations: loops over positions and heads.

Parameters are a mapping from qualified names; `at` is the prefix of a module. No code of the product is used.
Equation numbers refer to Ray Chowdhury and Caragea, Investigating Recurrent Transformers with
Dynamic Halt.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]
Vectors = Sequence[Tensor]


def layer_norm(p: Parameters, at: str, x: Tensor) -> Tensor:
    centred = x - x.mean()
    return centred / torch.sqrt((centred**2).mean() + 1e-5) * p[f"{at}.weight"] + p[f"{at}.bias"]


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def feedforward(p: Parameters, at: str, x: Tensor) -> Tensor:
    inner = gelu(p[f"{at}.inner.weight"] @ x + p[f"{at}.inner.bias"])
    return p[f"{at}.outer.weight"] @ inner + p[f"{at}.outer.bias"]


def xpos(x: Tensor, position: int, sign: int) -> Tensor:
    """Rotate pairs of dimensions and scale them by zeta^(sign * position / 512)."""
    size = x.shape[0]
    out = []
    for i in range(size // 2):
        angle = position * 10000 ** (-i / (size / 2))
        scale = ((2 * i + 0.4 * size) / (1.4 * size)) ** (sign * position / 512)
        a, b = x[2 * i], x[2 * i + 1]
        out.append((a * math.cos(angle) - b * math.sin(angle)) * scale)
        out.append((b * math.cos(angle) + a * math.sin(angle)) * scale)
    return torch.stack(out)


def attention(
    p: Parameters, at: str, queries: Vectors, sources: Vectors, heads: int, causal: bool = False
) -> list[Tensor]:
    """Apply Eq. 3-4, before residual and dropout; positions are indices in the sequence."""
    q = [p[f"{at}.query.weight"] @ x for x in queries]
    k = [p[f"{at}.key.weight"] @ x for x in sources]
    v = [p[f"{at}.value.weight"] @ x for x in sources]
    size = q[0].shape[0] // heads
    heads_out = []
    for h in range(heads):
        columns = slice(h * size, (h + 1) * size)
        keys = [xpos(vector[columns], u, -1) for u, vector in enumerate(k)]
        out = []
        for t, vector in enumerate(q):
            query = xpos(vector[columns], t, +1)
            visible = t + 1 if causal else len(keys)
            weights = torch.softmax(torch.stack([query @ key / math.sqrt(size) for key in keys[:visible]]), 0)
            out.append(sum(weights[u] * v[u][columns] for u in range(visible)))
        heads_out.append(out)
    return [p[f"{at}.output.weight"] @ torch.cat(parts) for parts in zip(*heads_out, strict=True)]


def cross_attention(p: Parameters, at: str, x: Vectors, memory: Vectors, heads: int) -> list[Tensor]:
    """Apply cross-attention as in Alg. 2, before residual and dropout, without positions and mask."""
    q = [p[f"{at}.attention.query.weight"] @ layer_norm(p, f"{at}.query_norm", vector) for vector in x]
    sources = [layer_norm(p, f"{at}.source_norm", vector) for vector in memory]
    k = [p[f"{at}.attention.key.weight"] @ vector for vector in sources]
    v = [p[f"{at}.attention.value.weight"] @ vector for vector in sources]
    size = q[0].shape[0] // heads
    out = []
    for query in q:
        parts = []
        for h in range(heads):
            columns = slice(h * size, (h + 1) * size)
            logits = torch.stack([query[columns] @ key[columns] / math.sqrt(size) for key in k])
            weights = torch.softmax(logits, 0)
            parts.append(sum(weights[m] * v[m][columns] for m in range(len(v))))
        out.append(p[f"{at}.attention.output.weight"] @ torch.cat(parts))
    return out


def block(
    p: Parameters,
    at: str,
    x: Vectors,
    source: Vectors,
    heads: int,
    causal: bool = False,
    memory: Vectors | None = None,
) -> list[Tensor]:
    """Apply Eq. 1-2; Eq. 9-11 with a gate among the parameters; the chunk step of Alg. 2 with memory."""
    queries = [layer_norm(p, f"{at}.attention_norm", state) for state in x]
    sources = [layer_norm(p, f"{at}.attention_norm", state) for state in source]
    gathered = attention(p, f"{at}.attention", queries, sources, heads, causal)
    attended = [update + state_before for state_before, update in zip(x, gathered, strict=True)]
    if memory is not None:
        cross_kv = cross_attention(p, f"{at}.recall", attended, memory, heads)
        attended = [update + state_before for state_before, update in zip(attended, cross_kv, strict=True)]
    result = []
    for state_before, a in zip(x, attended, strict=True):
        z = layer_norm(p, f"{at}.feedforward_norm", a)
        h = feedforward(p, f"{at}.feedforward", z) + a
        if f"{at}.gate.inner.weight" in p:
            gate = torch.sigmoid(feedforward(p, f"{at}.gate", z))
            h = gate * h + (1 - gate) * state_before
        result.append(h)
    return result


def with_boundaries(p: Parameters, x: Tensor) -> list[Tensor]:
    return [p["boundaries.start.weight"], *x, p["boundaries.end.weight"]]


def pool(states: Vectors, pooling: str) -> Tensor:
    if pooling == "mean":
        return sum(states[1:], states[0]) / len(states)
    return states[-1] if pooling == "end" else states[0]


def sinusoid(position: int, width: int) -> Tensor:
    """Return the sines and cosines of a position, in turn."""
    angles = [position / 10000 ** (2 * (c // 2) / width) for c in range(width)]
    values = [math.cos(angle) if c % 2 else math.sin(angle) for c, angle in enumerate(angles)]
    return torch.tensor(values, dtype=torch.float64)
