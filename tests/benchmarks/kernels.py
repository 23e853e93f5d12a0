"""Kernels, copies, host waits and bytes of one training step of every system, and of each of its layers.

    python -m tests.benchmarks.kernels [--only gut crvnn] [--width 64] [--bound 10] [--compiled] ...

Systems are those of `tests.benchmarks.systems`, all with the same bound on layers (as many layers, where
nothing halts), on sequences of a tenth of the length to all of it, with dropout and without, in each way to
save the work of what has halted. Counted are forward and backward pass of the objective: operators that
compute or move something (views are none), those that only copy, operators for which the host would wait on a
CUDA device, and bytes read and written. "A layer" divides by the layers that the slowest sequence ran. The
update of the weights, the norm of the gradient included, stands apart. Nothing is timed: the same versions
give the same figures on every machine.

With `--compiled` each function that PyTorch's backend generates counts as one, and each call of a library. A
compiled Transformer layer has 32, forward and backward: 14 products of matrices and attentions, which are
fused with nothing; 4 sums over all tokens, for gradients of biases and norms, which wait for all of them; and
14 of what is between two of these, one each time.

That bounds a step at the default sizes. Of the 377 kernels of ten Transformer layers 140 are products and
attentions, 100 lie between two of these, and 55 are not of layers. Of the 887 of TLB, two layers and a memory
on each of five chunks, 335 are products and attentions, at least 220 lie between, and 117 are not of layers.
Fewer takes products that compute what comes after them, as templates of PyTorch's backend can on a GPU.
"""

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.benchmarks import _timing, systems
from tests.benchmarks.early_exit import ours
from tests.support.kernel_count import DeviceCounts, counted
from trainables import catalog
from trainables.assembly import build_model, model_config, uncompiled
from trainables.testing.exits import modes_of
from trainables.training import step
from trainables.training.config import train_config
from trainables.training.step import Learner, one_step
from trainables.types import Batch

DEPTHS = ("max_layers", "layers", "test_layers", "loops")
"""Fields that bound the layers; what a model has of them is set."""
EXIT = "early_exit"
STACKED = ("looped", "tlb")
"""Models whose `layers` are a stack that is repeated."""
SIZES = {"width": 64, "heads": 4, "batch": 32, "length": 100, "bound": 10}


def bounded(raw: dict[str, Any], options: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """Settings of a system under the bound, everything else its default."""
    fields = catalog.load("models", raw["name"]).Config.model_fields
    depths = [each for each in DEPTHS if each != "layers" or raw["name"] not in STACKED]
    equal = {"width": options.width, "heads": options.heads, **dict.fromkeys(depths, options.bound)}
    return raw | {name: value for name, value in equal.items() if name in fields} | more


def without_dropout(raw: dict[str, Any]) -> dict[str, Any]:
    """The same settings with every rate of dropout at zero."""
    fields = catalog.load("models", raw["name"]).Config.model_fields
    return raw | {name: 0.0 for name in fields if name.endswith("dropout")}


def cases(raw: dict[str, Any], options: argparse.Namespace) -> dict[tuple[str, str], dict[str, Any]]:
    """Dropout and early exit to settings."""
    found = {}
    for dropout, change in {"on": dict, "off": without_dropout}.items():
        full = change(bounded(raw, options))
        modes = modes_of(model_config(full)) if systems.early_exit(full) is not None else ()
        for mode in modes or ("",):
            found[dropout, mode or "-"] = full | ({"early_exit": mode} if mode else {})
    return found


def built(raw: dict[str, Any]) -> nn.Module:
    """The system as it is before training."""
    return build_model(raw, systems.SHAPE, seed=0)


def passes(model: nn.Module, batch: Batch) -> Callable[[], None]:
    """Forward and backward pass of the training objective."""
    return lambda: ours(model, batch).mean().backward()


def update(model: nn.Module, batch: Batch) -> DeviceCounts:
    """What clipping and the update of the weights ask for; the second time, since the first makes room."""
    learner = Learner(model, train_config({"steps": 2}), seed=0)
    one_step(learner, batch, 0)
    passes(model, batch)()
    return counted(lambda: step._update(learner, 1))


def measure(label: str, raw: dict[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one system."""
    batch, rows = systems.batches(options), []
    for (dropout, mode), full in cases(raw, options).items():
        model = built(full)
        passes(model, batch)()
        model.zero_grad()
        counts = counted(passes(model, batch))
        layers = layers_run(model, batch)
        rows.append(
            {
                "system": label,
                "dropout": dropout,
                "early exit": mode,
                "layers": layers,
                "kernels": counts.kernels,
                "copies": counts.copies,
                "waits": counts.waits,
                "MB": counts.bytes / 1e6,
                "kernels a layer": counts.kernels / layers,
                "copies a layer": counts.copies / layers,
                "waits a layer": counts.waits / layers,
                "MB a layer": counts.bytes / 1e6 / layers,
                "update": update(model, batch).kernels,
            }
        )
        if options.compiled:
            rows[-1] |= compiled(model, full, batch)
        if label in (options.names or ()):
            print(label, dropout, mode, dict(counts.by_name.most_common()), dict(counts.waits_by_name))
    return rows


def compiled(
    model: nn.Module, raw: dict[str, Any], batch: Batch, *, generates: bool = True
) -> dict[str, Any]:
    """The same with layers compiled: graphs' kernels and those around them; nothing where that cannot be.

    Where nothing `generates` their code, the same kernels are planned and counted in seconds.
    """
    from tests.support.compiled_count import CountingCompiler

    if uncompiled(model_config(raw)) is not None:
        return dict.fromkeys(("compiled", "graphs", "compile s"), "-")
    compiler, run = CountingCompiler(generates=generates), passes(model, batch)
    for _ in range(2):  # a pass may meet the other way to call a region that the first one left
        with compiler.running():
            run()
        model.zero_grad()
    compiler.kernels = 0
    with compiler.running():
        around = counted(run).kernels
    model.zero_grad()
    return {"compiled": compiler.kernels + around, "graphs": compiler.graphs, "compile s": compiler.seconds}


def layers_run(model: nn.Module, batch: Batch) -> float:
    """By the slowest sequence."""
    seen: list[torch.Tensor] = []
    hook = model.encoder.register_forward_hook(lambda *made: seen.append(made[2].computed))
    passes(model, batch)()
    hook.remove()
    model.zero_grad()
    return float(seen[0].max())


def parser() -> argparse.ArgumentParser:
    """Options of this script."""
    found = _timing.parser(__doc__, **SIZES)
    found.add_argument("--only", nargs="+", choices=sorted(systems.systems()))
    found.add_argument("--compiled", action="store_true", help="count compiled layers too, for minutes")
    found.add_argument("--names", nargs="+", choices=sorted(systems.systems()), help="tell kernels by name")
    found.set_defaults(device="cpu")
    return found


Measure = Callable[[str, dict[str, Any], argparse.Namespace], list[dict[str, Any]]]


def tell(options: argparse.Namespace, measure: Measure) -> None:
    """Print what is measured of every system that was asked for."""
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    rows = [row for label, raw in systems.chosen(options).items() for row in measure(label, raw, options)]
    _timing.tell(rows, options)


def main() -> None:
    tell(parser().parse_args(), measure)


if __name__ == "__main__":
    main()
