"""Time of mixtures of experts against dense parts of equal active width, and against calling every expert.

    python tests/benchmarks/experts.py [--json] [--device cuda] [--width 128] [--tokens 2048] ...

For each number of experts, at the same number of active ones: forward and backward through a mixture of
feed-forwards; through all of its experts on all tokens, most of whose results are thrown away; and through
one feed-forward as wide as the active experts. Then the same of a whole layer of the Sparse Universal
Transformer, dense beside sparse. Columns take turns, and on a CPU the clock counts processor time, so that a
busy machine blurs the figures less. What counts are ratios to the dense part.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.assembly import initialise
from trainables.layers.experts import ExpertFeedForward, FeedforwardSettings
from trainables.layers.packing import Packing
from trainables.layers.tokens import KeysValues, Tokens
from trainables.models._sut import Layer
from trainables.models.sut import Config

LENGTH = 32
HEADS, HEAD_WIDTH = 2, 32


class EveryExpert(nn.Module):
    """A mixture as one would first write it: all experts run on all tokens, gates of zero for most."""

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
    """Rows of 32 tokens without padding."""
    rows = options.tokens // LENGTH
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(rows * LENGTH, options.width, generator=stream).to(options.device).requires_grad_()
    packing = Packing.of_lengths(torch.full((rows,), LENGTH, device=options.device), LENGTH)
    return x, Tokens.unturned(packing, x.dtype)


def built(part: nn.Module, options: argparse.Namespace) -> nn.Module:
    """With weights, without dropout."""
    initialise(part, 1)
    return part.to(options.device).eval()


def feedforward(options: argparse.Namespace, experts: int, active: int, inner: int) -> nn.Module:
    mixture = FeedforwardSettings(experts=experts, active=active, width=inner)
    return built(ExpertFeedForward(options.width, mixture, 0.0, 0.0), options)


def layer(options: argparse.Namespace, experts: int, active: int, times: int) -> nn.Module:
    """`times` as many heads, and as wide a hidden layer, in each expert."""
    sizes = {"experts": experts, "active": active}
    config = Config.model_validate(
        {
            "width": options.width,
            "attention": sizes | {"heads": times * HEADS, "head_width": HEAD_WIDTH, "window": 1},
            "feedforward": sizes | {"width": times * options.inner},
        }
    )
    return built(Layer(config), options)


def run_layer(part: nn.Module, x: Tensor, tokens: Tokens) -> Tensor:
    seen = KeysValues(*part.keys_values(x, tokens.key_rotation), tokens.packing)
    return part(x, tokens, seen)[0]


def timed(steps: dict[str, Callable[[], Tensor]], options: argparse.Namespace) -> dict[str, float]:
    """Median seconds of forward and backward of each."""
    clock = time.perf_counter if options.device == "cuda" else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(options.warm_up + options.repeats):
        for name, step in steps.items():
            _wait(options.device)
            begin = clock()
            step().square().mean().backward()
            _wait(options.device)
            if number >= options.warm_up:
                seconds[name].append(clock() - begin)
    return {name: statistics.median(each) for name, each in seconds.items()}


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure(options: argparse.Namespace, experts: int) -> dict[str, float]:
    """One row of the table: dense seconds, all others as ratios to them."""
    x, tokens = batch(options)
    active = options.active
    sparse, every = (feedforward(options, experts, active, options.inner) for _ in range(2))
    dense = feedforward(options, 1, 1, active * options.inner)
    thick, thin = layer(options, experts, active, 1), layer(options, 1, 1, active)
    naive = EveryExpert(every)
    torch.testing.assert_close(sparse(x, tokens)[0], naive(x, tokens), rtol=1e-3, atol=1e-4)
    seconds = timed(
        {
            "dense": lambda: dense(x, tokens)[0],
            "sparse": lambda: sparse(x, tokens)[0],
            "every expert": lambda: naive(x, tokens),
            "dense layer": lambda: run_layer(thin, x, tokens),
            "sparse layer": lambda: run_layer(thick, x, tokens),
        },
        options,
    )
    return {
        "experts": float(experts),
        "dense, s": seconds["dense"],
        "sparse": seconds["sparse"] / seconds["dense"],
        "every expert": seconds["every expert"] / seconds["dense"],
        "dense layer, s": seconds["dense layer"],
        "sparse layer": seconds["sparse layer"] / seconds["dense layer"],
    }


def table(rows: list[dict[str, float]]) -> str:
    """Markdown."""
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(f"{row[head]:.3g}" for head in heads) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--experts", type=int, nargs="+", default=[4, 12, 24, 48])
    parser.add_argument("--active", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--inner", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--warm-up", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [measure(options, experts) for experts in options.experts]
    device = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or "cpu"
    about = {
        **vars(options),
        "device name": device,
        "torch": torch.__version__,
        "unit": "seconds forward and backward, median; the rest are ratios to dense",
    }
    print(
        json.dumps({"about": about, "rows": rows}, indent=2) if options.json else f"{about}\n\n{table(rows)}"
    )


if __name__ == "__main__":
    main()
