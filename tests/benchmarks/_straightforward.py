"""A plain implementation of GUT, and training steps, for benchmarks of models."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.dropout import set_dropout_context
from trainables.types import Batch

SPREAD, SHIFT = 12.0, 1.5
"""Factor of the weights of the halting logit, and the number added to its bias."""


class Straightforward(nn.Module):
    """GUT on padded tensors, with every layer on the whole batch until all sequences have halted."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.config = model.encoder.config

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        encoder, rate = self.model.encoder, self.config.dropout
        x = F.dropout(F.embedding(batch.tokens, self.model.embedding()), rate, self.training)
        h, mask = self._add_ends(x, batch.mask)
        pooled, ponder = self._run_layers(encoder, h, mask)
        ends = pooled[torch.arange(len(pooled)), mask.sum(1) - 1]
        return F.cross_entropy(self.model.readout(ends), batch.labels, reduction="none"), ponder

    def _add_ends(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        n = mask.sum(1)
        columns = torch.arange(x.shape[1] + 2, device=x.device)
        h = F.pad(x, (0, 0, 1, 1))
        h = torch.where((columns == 0)[:, None], self.model.encoder.boundaries.start(), h)
        h = torch.where((columns == n[:, None] + 1)[..., None], self.model.encoder.boundaries.end(), h)
        return h, columns < n[:, None] + 2

    def _run_layers(self, encoder: nn.Module, h: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        survival = h.new_ones(h.shape[0])
        mixed, ponder, num_kept = torch.zeros_like(h), torch.zeros_like(survival), torch.zeros_like(survival)
        active = torch.ones_like(survival, dtype=torch.bool)
        for _ in range(self.config.max_layers):
            new = self._block(encoder.block, h, mask)
            p = encoder.halt(torch.cat((_mean(h, mask), _mean(new, mask)), -1))
            active = active & (1 - survival * (1 - p) < self.config.halt.threshold)
            if not active.any():
                break
            keep = active[:, None, None]
            mixed = torch.where(keep, mixed + (survival * p)[:, None, None] * h, mixed)
            num_kept = num_kept + active
            ponder = torch.where(active, ponder + survival * p * num_kept, ponder)
            survival = torch.where(active, survival * (1 - p), survival)
            h = torch.where(keep, new, h)
        return mixed + survival[:, None, None] * h, ponder + survival * num_kept

    def _block(self, block: nn.Module, x: Tensor, mask: Tensor) -> Tensor:
        rate, z = self.config.dropout, block.attention_norm(x)
        heads = [
            part(z).unflatten(-1, (self.config.heads, -1))
            for part in (block.attention.query, block.attention.key, block.attention.value)
        ]
        q, k, v = (part.transpose(1, 2) for part in (_xpos(heads[0], 1), _xpos(heads[1], -1), heads[2]))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
        a = x + F.dropout(block.attention.output(out.transpose(1, 2).flatten(2)), rate, self.training)
        z = block.feedforward_norm(a)
        gate = self._feedforward(block.gate, z).sigmoid()
        return gate * (a + self._feedforward(block.feedforward, z)) + (1 - gate) * x

    def _feedforward(self, part: nn.Module, z: Tensor) -> Tensor:
        inner = F.gelu(F.dropout(part.inner(z), self.config.dropout, self.training))
        return F.dropout(part.outer(inner), self.config.dropout, self.training)


def _mean(h: Tensor, mask: Tensor) -> Tensor:
    return (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def _xpos(x: Tensor, sign: int) -> Tensor:
    width, size = x.shape[1], x.shape[-1]
    i = torch.arange(size // 2, device=x.device)
    positions = torch.arange(width, device=x.device)[:, None]
    angle = positions * 10_000 ** (-2 * i / size)
    scale = ((2 * i + 0.4 * size) / (1.4 * size)) ** (sign * (positions - width // 2) / 512)
    cos, sin = ((turn * scale)[:, None] for turn in (angle.cos(), angle.sin()))
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


def training_objective(model: nn.Module, batch: Batch) -> Tensor:
    """Return the training objective, with dropout."""
    set_dropout_context(model, seed=0, step=0)
    output = model(batch)
    return output.loss + 0.1 * output.encoded.ponder


def training_step(model: nn.Module, objective: Callable[[], Tensor]) -> Callable[[], None]:
    """Return a training step of AdamW; its learning rate is zero, so that all steps are equal."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)

    def step() -> None:
        optimiser.zero_grad()
        objective().mean().backward()
        optimiser.step()

    return step
