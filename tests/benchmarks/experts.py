"""Time of mixtures of experts against dense parts of equal active width, and against calling every expert.

    python -m tests.benchmarks.experts [--json] [--device cuda] [--width 128] [--tokens 2048] ...

For each number of experts, with the same number of active ones, the table compares a mixture of
feed-forwards, the same mixture with all experts on all tokens, and one feed-forward as wide as the active
experts. The same comparison follows for a whole layer of the Sparse Universal Transformer. Columns take
turns, and on a CPU the clock counts processor time. Read the ratios to the dense part.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.benchmarks import _timing
from trainables.assembly import initialise
from trainables.layers.experts import ExpertFeedForward, FeedforwardSettings
from trainables.layers.packing import Packing
from trainables.layers.tokens import Tokens
from trainables.models._sut import SparseLayer
from trainables.models.sut import Config

LENGTH = 32
HEADS, HEAD_WIDTH = 2, 32


class EveryExpert(nn.Module):
    """A mixture in the simplest form: all experts run on all tokens, with gates of zero for most."""

    def __init__(self, mixture: ExpertFeedForward) -> None:
        super().__init__()
        self.mixture = mixture

    def forward(self, x: Tensor, tokens: Tokens) -> Tensor:
        parts = self.mixture
        routing = parts.router(x, tokens)
        gates = torch.zeros_like(routing.log_probabilities).scatter(1, routing.chosen, routing.gates)
        inner = F.gelu(torch.einsum("md,ehd->emh", x, parts.inner.weight) + parts.inner.bias[:, None])
        outer = torch.einsum("emh,edh->emd", inner, parts.outer.weight) + parts.outer.bias[:, None]
        return torch.einsum("me,emd->md", gates, outer)


def batch(options: argparse.Namespace) -> tuple[Tensor, Tokens]:
    """Return rows of 32 tokens without padding."""
    rows = options.tokens // LENGTH
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(rows * LENGTH, options.width, generator=stream).to(options.device).requires_grad_()
    packing = Packing.of_lengths(torch.full((rows,), LENGTH, device=options.device), LENGTH)
    return x, Tokens.unrotated(packing, x.dtype)


def initialised(part: nn.Module, options: argparse.Namespace) -> nn.Module:
    """Initialise a module, without dropout."""
    initialise(part, 1)
    return part.to(options.device).eval()


def feedforward(options: argparse.Namespace, experts: int, active: int, inner: int) -> nn.Module:
    mixture = FeedforwardSettings(experts=experts, active=active, width=inner)
    return initialised(ExpertFeedForward(options.width, mixture, 0.0, 0.0), options)


def layer(options: argparse.Namespace, experts: int, active: int, times: int) -> nn.Module:
    """Return a layer with `times` as many heads and as wide a hidden layer in each expert."""
    sizes = {"experts": experts, "active": active}
    config = Config.model_validate(
        {
            "width": options.width,
            "attention": sizes | {"heads": times * HEADS, "head_width": HEAD_WIDTH, "window": 1},
            "feedforward": sizes | {"width": times * options.inner},
        }
    )
    return initialised(SparseLayer(config), options)


def run_layer(part: nn.Module, x: Tensor, tokens: Tokens) -> Tensor:
    return part(x, tokens)[0]


def measure(options: argparse.Namespace, experts: int) -> dict[str, float]:
    """Return one row of the table: dense seconds, and other times as ratios to them."""
    x, tokens = batch(options)
    active = options.active
    sparse, every = (feedforward(options, experts, active, options.inner) for _ in range(2))
    dense = feedforward(options, 1, 1, active * options.inner)
    thick, thin = layer(options, experts, active, 1), layer(options, 1, 1, active)
    naive = EveryExpert(every)
    torch.testing.assert_close(sparse(x, tokens)[0], naive(x, tokens), rtol=1e-3, atol=1e-4)
    functions: dict[str, Callable[[], Tensor]] = {
        "dense": lambda: dense(x, tokens)[0],
        "sparse": lambda: sparse(x, tokens)[0],
        "every expert": lambda: naive(x, tokens),
        "dense layer": lambda: run_layer(thin, x, tokens),
        "sparse layer": lambda: run_layer(thick, x, tokens),
    }
    steps = {name: lambda part=part: part().square().mean().backward() for name, part in functions.items()}
    seconds = _timing.timed(steps, options)
    return {
        "experts": experts,
        "dense, s": seconds["dense"],
        "sparse": seconds["sparse"] / seconds["dense"],
        "every expert": seconds["every expert"] / seconds["dense"],
        "dense layer, s": seconds["dense layer"],
        "sparse layer": seconds["sparse layer"] / seconds["dense layer"],
    }


def main() -> None:
    parser = _timing.parser(__doc__, active=4, width=256, inner=128, tokens=2048, repeats=7)
    parser.add_argument("--experts", type=int, nargs="+", default=[4, 12, 24, 48])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    _timing.print_results([measure(options, experts) for experts in options.experts], options)


if __name__ == "__main__":
    main()
