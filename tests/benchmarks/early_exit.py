"""Time of a training step of GUT against its upper bound on layers, when inputs halt early.

    python -m tests.benchmarks.early_exit [--json] [--device cuda] [--width 128] [--batch 64] ...

For each bound, the table has the three early-exit modes and a straightforward implementation. The latter
works on padded tensors and stops when the whole batch has halted. Halting is set so that some sequences run a
few layers and some run all. All columns have the same weights and inputs, and so the same results. Figures
are median seconds a step; on a CPU of processor time, which other processes disturb less.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.benchmarks import _timing
from trainables.assembly import build_model
from trainables.layers.dropout import set_dropout_context
from trainables.types import Batch, Encoded, TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)
MODES = ("none", "batch", "compact")
SPREAD, SHIFT = 12.0, 1.5
"""Factor of the weights of the halting logit, and the number added to its bias."""


class Straightforward(nn.Module):
    """GUT in the simplest form: padded, every layer on the whole batch, until all sequences have halted."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.config = model.encoder.config

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        encoder, rate = self.model.encoder, self.config.dropout
        x = F.dropout(F.embedding(batch.tokens, self.model.embedding()), rate, self.training)
        h, mask = self._augment(x, batch.mask)
        pooled, ponder = self._think(encoder, h, mask)
        ends = pooled[torch.arange(len(pooled)), mask.sum(1) - 1]
        return F.cross_entropy(self.model.readout(ends), batch.labels, reduction="none"), ponder

    def _augment(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        n = mask.sum(1)
        columns = torch.arange(x.shape[1] + 2, device=x.device)
        h = F.pad(x, (0, 0, 1, 1))
        h = torch.where((columns == 0)[:, None], self.model.encoder.boundaries.start(), h)
        h = torch.where((columns == n[:, None] + 1)[..., None], self.model.encoder.boundaries.end(), h)
        return h, columns < n[:, None] + 2

    def _think(self, encoder: nn.Module, h: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        survival = h.new_ones(h.shape[0])
        mixed, ponder, kept = torch.zeros_like(h), torch.zeros_like(survival), torch.zeros_like(survival)
        active = torch.ones_like(survival, dtype=torch.bool)
        for _ in range(self.config.max_layers):
            new = self._block(encoder.block, h, mask)
            p = encoder.halt(torch.cat((_mean(h, mask), _mean(new, mask)), -1))
            active = active & (1 - survival * (1 - p) < self.config.halt.threshold)
            if not active.any():
                break
            keep = active[:, None, None]
            mixed = torch.where(keep, mixed + (survival * p)[:, None, None] * h, mixed)
            kept = kept + active
            ponder = torch.where(active, ponder + survival * p * kept, ponder)
            survival = torch.where(active, survival * (1 - p), survival)
            h = torch.where(keep, new, h)
        return mixed + survival[:, None, None] * h, ponder + survival * kept

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
    where = torch.arange(width, device=x.device)[:, None]
    angle = where * 10_000 ** (-2 * i / size)
    scale = ((2 * i + 0.4 * size) / (1.4 * size)) ** (sign * (where - width // 2) / 512)
    cos, sin = ((turn * scale)[:, None] for turn in (angle.cos(), angle.sin()))
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


def build(options: argparse.Namespace, bound: int, mode: str) -> nn.Module:
    """Build GUT with halting that varies more than at initialisation."""
    raw = {
        "name": "universal",
        "width": options.width,
        "max_layers": bound,
        "attention_dropout": 0.0,
        "early_exit": mode,
    }
    model = build_model(raw, SHAPE, seed=0, device=options.device)
    with torch.no_grad():
        model.encoder.halt.outer.weight.mul_(SPREAD)
        model.encoder.halt.outer.bias.add_(SHIFT)
    return model


def batches(options: argparse.Namespace) -> Batch:
    """Return a batch of sequences of 10 to 100 tokens, uniformly distributed."""
    stream = torch.Generator().manual_seed(1)
    lengths = torch.randint(10, 101, (options.batch,), generator=stream)
    tokens = torch.randint(0, 15, (options.batch, int(lengths.max())), generator=stream)
    mask = torch.arange(tokens.shape[1]) < lengths[:, None]
    labels = torch.randint(0, 10, (options.batch,), generator=stream)
    return Batch(*(part.to(options.device) for part in (tokens, mask, labels)))


def measure(options: argparse.Namespace, bound: int) -> dict[str, float]:
    """Return one row of the table."""
    batch = batches(options)
    models = {mode: build(options, bound, mode) for mode in MODES}
    steps = {
        mode: training_step(model, lambda model=model: training_objective(model, batch))
        for mode, model in models.items()
    }
    plain = Straightforward(build(options, bound, "batch"))
    steps["straightforward"] = training_step(plain, lambda: sum(plain(batch)))
    seconds = _timing.timed(steps, options)
    set_dropout_context(models["compact"], seed=0, step=0)
    encoded: Encoded = models["compact"](batch).encoded
    return {
        "bound": bound,
        **seconds,
        "kept, mean": encoded.depth.mean().item(),
        "kept, max": encoded.depth.max().item(),
        "run, mean": encoded.computed.mean().item(),
    }


def training_objective(model: nn.Module, batch: Batch) -> Tensor:
    """Return the training objective, with dropout."""
    set_dropout_context(model, seed=0, step=0)
    output = model(batch)
    return output.loss + 0.1 * output.encoded.ponder


def training_step(model: nn.Module, objective: Callable[[], Tensor]) -> Callable[[], None]:
    """Return a step: forward, backward, AdamW with a learning rate of zero, so that all steps are equal."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)

    def step() -> None:
        optimiser.zero_grad()
        objective().mean().backward()
        optimiser.step()

    return step


def check(options: argparse.Namespace) -> None:
    """Check that the straightforward implementation computes the same as the model."""
    model, batch = build(options, 10, "compact").eval(), batches(options)
    training_objective, (loss, ponder) = model(batch), Straightforward(model).eval()(batch)
    torch.testing.assert_close(training_objective.loss, loss, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(training_objective.encoded.ponder, ponder, rtol=1e-3, atol=1e-3)


def main() -> None:
    parser = _timing.parser(__doc__, width=128, batch=32, repeats=5)
    parser.add_argument("--bounds", type=int, nargs="+", default=[10, 20, 30, 40])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    check(options)
    _timing.print_results([measure(options, bound) for bound in options.bounds], options)


if __name__ == "__main__":
    main()
