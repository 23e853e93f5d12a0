"""Training step, inference, memory and FLOPs of all models at equal sizes, and the savings by halting.

    python -m tests.benchmarks.systems [--quick] [--only gut crvnn] [--width 128] [--batch 32] ...

The benchmark covers every model file, with the model's defaults except for the settings in `SYSTEMS`. Each
model takes turns with a reference model of the same width and depth. The reference has PyTorch's own encoder
layers on padded tensors, as many as the slowest sequence of the batch needs; models with shared weights have
one repeated layer as reference. For the gated universal transformer it is a plain form of the published
algorithm, which stops when the whole batch has halted. On a CPU the clock counts processor time. "Speed-up"
is the step time of the reference divided by ours. "Saved" is the step time without early exit divided by the
time with it.
"""

import argparse
from collections.abc import Callable
from functools import cache
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks import _timing
from tests.benchmarks._straightforward import (
    SHIFT,
    SPREAD,
    Straightforward,
    training_objective,
    training_step,
)
from tests.support.numerics.tensor_memory import peak_bytes
from trainables import catalog, costs
from trainables.assembly import build_model, model_config
from trainables.layers.attention.attend import plan_no_shapes
from trainables.layers.dropout import set_dropout_context
from trainables.tasks import listops
from trainables.types import Batch, TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)
SYSTEMS: dict[str, dict[str, Any]] = {
    "gut": {"name": "universal", "max_layers": 10},
    "ut": {
        "name": "universal",
        "max_layers": 10,
        "gate": False,
        "halt": {"unit": "token", "transition": False},
        "pooling": "mean",
    },
    "gutlb": {"name": "gutlb", "max_layers": 5},
    "looped": {"name": "looped", "loops": 6},
    "ndr": {"name": "ndr", "layers": 10, "test_layers": 10},
    "sut": {
        "name": "sut",
        "attention": {"experts": 8, "active": 2, "heads": 2, "head_width": 32, "window": 16},
        "feedforward": {"experts": 8, "active": 2, "width": 64},
    },
}
"""Models whose settings differ from the defaults, or that have several variants."""
QUICK = {"width": 32, "batch": 8, "length": 32, "repeats": 3}
UNSHARED = ("transformer", "tlb")
MEBI, GIGA = 1 << 20, 1e9


def systems() -> dict[str, dict[str, Any]]:
    """Return settings by label, with every model file at least once."""
    names = {raw["name"] for raw in SYSTEMS.values()}
    return SYSTEMS | {name: {"name": name} for name in catalog.names("models") if name not in names}


def selected_models(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the selected models."""
    return {label: raw for label, raw in systems().items() if label in (options.only or systems())}


def settings(raw: dict[str, Any], options: argparse.Namespace, **changes: Any) -> dict[str, Any]:
    """Return a model's settings with equal sizes and no attention dropout, as the fused kernel needs."""
    fields = catalog.load("models", raw["name"]).Config.model_fields
    equal_sizes = {"width": options.width, "heads": options.heads, "attention_dropout": 0.0}
    return {name: value for name, value in equal_sizes.items() if name in fields} | raw | changes


def build(raw: dict[str, Any], device: str = "cpu") -> nn.Module:
    """Build a classifier whose halting varies more than at initialisation."""
    if device == "cuda":
        plan_no_shapes()  # as trials do
    model = build_model(raw, SHAPE, seed=0, device=device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("halt.outer.weight"):
                parameter.mul_(SPREAD)
            if name.endswith("halt.outer.bias"):
                parameter.add_(SHIFT)
    return model


def batches(options: argparse.Namespace) -> Batch:
    """Return sequences of a tenth of the length to all of it, or with `--short` of ListOps-O lengths."""
    stream = torch.Generator().manual_seed(1)
    if getattr(options, "short", False):
        all_lengths = listops_lengths()
        lengths = all_lengths[torch.randint(len(all_lengths), (options.batch,), generator=stream)]
    else:
        length_min = max(1, options.length // 10)
        lengths = torch.randint(length_min, options.length + 1, (options.batch,), generator=stream)
        lengths[0] = options.length
    width = int(lengths.max())
    tokens = torch.randint(0, 15, (options.batch, width), generator=stream)
    mask = torch.arange(width) < lengths[:, None]
    labels = torch.randint(0, 10, (options.batch,), generator=stream)
    return Batch(
        *(part.to(options.device) for part in (tokens.masked_fill(~mask, SHAPE.pad_id), mask, labels))
    )


@cache
def listops_lengths() -> Tensor:
    """Return the lengths of 2,000 training inputs of ListOps-O."""
    config = listops.Config(near_iid_examples=2_500, valid_examples=1)
    lengths = np.array([len(value) for value in listops.build(config, "near-iid")["tokens"].to_pylist()])
    return torch.from_numpy(lengths[lengths <= config.train_length_max][:2_000])


class PytorchEncoder(nn.Module):
    """PyTorch's encoder layers between an embedding and the same readout."""

    def __init__(self, options: argparse.Namespace, depth: int, *, shared: bool) -> None:
        super().__init__()
        width = options.width
        self.depth = depth
        self.embedding = nn.Embedding(SHAPE.vocabulary_size, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, options.heads, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(1 if shared else depth)
        )
        for layer in self.layers:
            layer.self_attn.dropout = 0.0
        self.readout = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, SHAPE.num_classes))

    def forward(self, batch: Batch) -> Tensor:
        x, mask = F.dropout(self.embedding(batch.tokens), 0.1, self.training), batch.mask
        for number in range(self.depth):
            x = self.layers[number % len(self.layers)](x, src_key_padding_mask=~mask)
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return F.cross_entropy(self.readout(mean), batch.labels, reduction="none")


def build_reference(raw: dict[str, Any], options: argparse.Namespace, depth: int) -> nn.Module:
    """Build a model of comparable size from PyTorch's own layers."""
    if raw["name"] == "universal" and raw.get("gate", True):
        return Straightforward(build(settings(raw, options, early_exit="batch"), options.device))
    return PytorchEncoder(options, depth, shared=raw["name"] not in UNSHARED).to(options.device)


def objective(model: nn.Module, batch: Batch) -> Callable[[], Tensor]:
    """Return the training objective of a model or a reference model."""
    if isinstance(model, PytorchEncoder):
        return lambda: model(batch)
    if isinstance(model, Straightforward):
        return lambda: sum(model(batch))
    return lambda: training_objective(model, batch)


def count_flops(step: Callable[[], None]) -> float:
    """Count forward and backward FLOPs with PyTorch's counter."""
    with FlopCounterMode(display=False) as counter:
        step()
    return float(counter.get_total_flops())


def inference(model: nn.Module, batch: Batch) -> Callable[[], None]:
    """Return a function that runs a forward pass without gradients and restores the mode of the model."""

    def run() -> None:
        training = model.training
        with torch.inference_mode():
            model.eval()(batch)
        model.train(training)

    return run


def measure(label: str, raw: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return one row of the table."""
    batch, full = batches(options), settings(raw, options)
    model = build(full, options.device)
    set_dropout_context(model, seed=0, step=0)
    encoded = model(batch).encoded
    halts = early_exit(full) is not None
    baseline = build_reference(raw, options, ceil(float(encoded.computed.max())))
    steps = {
        "ours": training_step(model, objective(model, batch)),
        "plain": training_step(baseline, objective(baseline, batch)),
        "inference": inference(model, batch),
        "plain inference": inference(baseline, batch),
    }
    if halts:
        model_without_exit = build(settings(raw, options, early_exit="none"), options.device)
        steps["none"] = training_step(model_without_exit, objective(model_without_exit, batch))
    peak = peak_bytes(steps["ours"], *model.parameters())
    flops = count_flops(steps["ours"])
    seconds = _timing.time_steps(steps, options)
    tokens = int(batch.mask.sum())
    estimate = costs.peak_memory_bytes(model_config(full), SHAPE, options.batch, options.length)
    return {
        "system": label,
        "parameters": costs.parameters(model),
        "kept": float(encoded.depth.mean()),
        "run, most": float(encoded.computed.max()),
        "step ms": 1e3 * seconds["ours"],
        "tokens/s": tokens / seconds["ours"],
        "speed-up": seconds["plain"] / seconds["ours"],
        "saved": seconds["none"] / seconds["ours"] if halts else 1.0,
        "inference ms": 1e3 * seconds["inference"],
        "inference tokens/s": tokens / seconds["inference"],
        "inference speed-up": seconds["plain inference"] / seconds["inference"],
        "peak MiB": peak / MEBI,
        "planned MiB": estimate / MEBI,
        "GFLOP": flops / GIGA,
        "GFLOP/s": flops / GIGA / seconds["ours"],
        "plain GFLOP/s": count_flops(steps["plain"]) / GIGA / seconds["plain"],
    }


def early_exit(raw: dict[str, Any]) -> str | None:
    """Return the early-exit mode of the model, or None if nothing in it halts."""
    config = model_config(raw)
    return None if getattr(config, "halt", None) is None else getattr(config, "early_exit", None)


def parser() -> argparse.ArgumentParser:
    """Return the parser of this script's options."""
    argument_parser = _timing.parser(__doc__, width=128, heads=4, batch=32, length=100, repeats=7)
    argument_parser.add_argument(
        "--quick", action="store_true", help="small sizes, three rounds, under a minute"
    )
    argument_parser.add_argument("--only", nargs="+", choices=sorted(systems()))
    add_short(argument_parser)
    argument_parser.set_defaults(device="cpu")
    return argument_parser


def add_short(parser: argparse.ArgumentParser) -> None:
    """Add the option for lengths of ListOps-O."""
    parser.add_argument("--short", action="store_true", help="lengths of ListOps-O, 22 tokens on average")


def main() -> None:
    options = parser().parse_args()
    if options.quick:
        vars(options).update(QUICK)
    torch.set_num_threads(options.threads)
    _timing.print_results(
        [measure(label, raw, options) for label, raw in selected_models(options).items()], options
    )


if __name__ == "__main__":
    main()
