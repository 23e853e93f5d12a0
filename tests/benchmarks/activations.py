"""What a training step keeps and takes against its upper bound on layers, with activation checkpointing and
without.

    python -m tests.benchmarks.activations [--json] [--device cuda] [--width 128] [--batch 32] ...

Systems of the box at several bounds, everything run. Columns: MiB that live on after the forward pass, MiB at
the peak of the step, weights left out, both with all activations kept and with layers run again; what a plan
says of the latter; and the time of a step with layers run again over that without (processor time on a CPU).
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch

from tests.benchmarks import _timing
from tests.support.numerics.tensor_memory import TensorMemory, peak_bytes
from trainables import costs
from trainables.assembly import build_model, model_config
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.training.config import train_config
from trainables.training.step import Learner, objective
from trainables.types import Batch, TaskShape

MEBI = 2**20
SHAPE = TaskShape("classify", 18, 10, 16, 100)
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "gut": ("max_layers", {"name": "universal", "early_exit": "none"}),
    "gut, token halt": (
        "max_layers",
        {"name": "universal", "early_exit": "none", "halt": {"unit": "token"}},
    ),
    "gut, no halt": ("max_layers", {"name": "universal", "halt": None}),
    "transformer": ("layers", {"name": "transformer"}),
    "ndr": ("layers", {"name": "ndr"}),
}
"""Which field bounds the layers, and the settings beside it."""


def main() -> None:
    """Measure and print."""
    options = parser().parse_args()
    torch.set_num_threads(options.threads)
    rows = [measured(label, bound, options) for label in options.only or SYSTEMS for bound in options.bounds]
    _timing.tell(rows, options)


def measured(label: str, bound: int, options: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    field, raw = SYSTEMS[label]
    full = raw | {field: bound, "width": options.width, "heads": options.heads}
    batch = synthetic_batch(SHAPE, options.batch, options.length, seed=0).to(torch.device(options.device))
    found: dict[str, Any] = {"system": label, "bound": bound}
    steps = {}
    for column, again in {"kept": False, "again": True}.items():
        config = train_config({"steps": 1, "checkpoint_activations": again})
        learner = Learner(build_model(full, SHAPE, 0, options.device), config, seed=0)
        steps[column] = step = passes(learner, batch)
        step()  # gradients are there then
        if options.device == "cpu":
            with TensorMemory() as memory:
                total = loss(learner, batch)
            found[f"{column}: forward MiB"] = memory.now / MEBI
            del total
        found[f"{column}: peak MiB"] = peak_bytes(step, next(learner.model.parameters())) / MEBI
    planned = costs.peak_memory_bytes(
        model_config(full), SHAPE, options.batch, options.length, 0, recomputes=True
    )
    seconds = _timing.timed(steps, options)
    return found | {"planned MiB": planned / MEBI, "time ratio": seconds["again"] / seconds["kept"]}


def loss(learner: Learner, batch: Batch) -> torch.Tensor:
    """Of a forward pass."""
    set_dropout_context(learner.model, 0, 0)
    return objective(learner.model(batch), learner.config)


def passes(learner: Learner, batch: Batch) -> Callable[[], None]:
    """A forward and a backward pass."""
    return lambda: loss(learner, batch).backward()


def parser() -> argparse.ArgumentParser:
    """Options of this script."""
    found = _timing.parser(__doc__, width=128, heads=4, batch=32, length=100, repeats=3)
    found.add_argument("--bounds", nargs="+", type=int, default=[5, 10, 20, 40])
    found.add_argument("--only", nargs="+", choices=list(SYSTEMS))
    found.add_argument("--json", action="store_true")
    found.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    return found


if __name__ == "__main__":
    main()
