"""Kernels and time of a step of several seeds together, beside that of one alone.

    python -m tests.benchmarks.packed [--only gut tlb] [--members 2 4 8] [--device cuda] [--width 64] ...

Systems are those of `tests.benchmarks.kernels` whose steps can be stacked
(`trainables.training.stacked_step`), with dropout and, as in a stack, with every layer run. Counted are whole
steps, the update of the weights included. "Of one" divides the kernels of all members by those of one alone;
"a seed" is what each member asks for. Seconds are those of a step of all members, one after the other and
together; on a CPU processor time of one thread, where the stack loses.
"""

import argparse
import warnings
from itertools import count
from typing import Any

import torch

from tests.benchmarks import _timing, kernels, systems
from tests.support.kernel_count import DeviceCounts, counted
from trainables.assembly import build_model, model_config, unstacked
from trainables.training.config import train_config
from trainables.training.stacked_step import LearnerStack
from trainables.training.step import Learner, one_step
from trainables.types import Batch


def cases(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Settings of every system that can be stacked, with every layer run."""
    found = {}
    for label, raw in systems.chosen(options).items():
        full = kernels.bounded(raw, options)
        if unstacked(model_config(full)) is None:
            found[label] = full | ({kernels.EXIT: "none"} if systems.early_exit(full) is not None else {})
    return found


def learner(raw: dict[str, Any], seed: int, device: str = "cpu") -> Learner:
    """A training of the system."""
    model = build_model(raw, systems.SHAPE, seed, device=device)
    return Learner(model, train_config({"steps": 99}), seed=seed)


def alone(raw: dict[str, Any], batch: Batch, device: str = "cpu") -> DeviceCounts:
    """What a step of one asks for; the second, since the first makes room."""
    one = learner(raw, 0, device)
    one_step(one, batch, 0)
    return counted(lambda: one_step(one, batch, 1))


def together(raw: dict[str, Any], batches: list[Batch], device: str = "cpu") -> DeviceCounts:
    """What a step of as many as there are batches asks for."""
    stack = LearnerStack([learner(raw, seed, device) for seed in range(len(batches))])
    stack.step(batches, 0)
    return counted(lambda: stack.step(batches, 1))


def seconds(raw: dict[str, Any], batches: list[Batch], options: argparse.Namespace) -> dict[str, float]:
    """Seconds of a step of each, one after the other ("apart"), and of all together ("together")."""
    each = [learner(raw, seed, options.device) for seed in range(len(batches))]
    stack = LearnerStack([learner(raw, seed, options.device) for seed in range(len(batches))])
    numbers = count(), count()

    def apart() -> None:
        step = next(numbers[0])
        for one, batch in zip(each, batches, strict=True):
            one_step(one, batch, step)

    return _timing.timed({"apart": apart, "together": lambda: stack.step(batches, next(numbers[1]))}, options)


def measure(label: str, raw: dict[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one system."""
    batch, rows = systems.batches(options), []
    one = alone(raw, batch, options.device)
    for members in options.members:
        batches = [batch] * members
        many, times = together(raw, batches, options.device), seconds(raw, batches, options)
        rows.append(
            {
                "system": label,
                "members": members,
                "kernels alone": one.kernels,
                "together": many.kernels,
                "of one": many.kernels / one.kernels,
                "a seed": many.kernels / members,
                "waits alone": one.waits,
                "waits together": many.waits,
                "s apart": times["apart"],
                "s together": times["together"],
                "speed-up": times["apart"] / times["together"],
            }
        )
    return rows


def main() -> None:
    found = _timing.parser(__doc__, **kernels.SIZES, repeats=5)
    found.add_argument("--only", nargs="+", choices=sorted(systems.systems()))
    found.add_argument("--members", nargs="+", type=int, default=[2, 4, 8])
    found.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = found.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    rows = [row for label, raw in cases(options).items() for row in measure(label, raw, options)]
    _timing.tell(rows, options)


if __name__ == "__main__":
    main()
