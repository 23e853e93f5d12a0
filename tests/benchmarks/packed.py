"""Kernels and CPU time of a step of several seeds together, beside that of one alone.

    python -m tests.benchmarks.packed [--only gut tlb] [--members 2 4 8] [--width 64] [--bound 10] ...

Systems are those of `tests.benchmarks.kernels` whose steps can be stacked
(`trainables.training.stacked_step`), with dropout and, as in a stack, with every layer run. Counted are whole
steps, the update of the weights included. "Of one" divides the kernels of all members by those of one alone;
"a seed" is what each member asks for. Time is of one CPU thread, where the stack loses: a GPU that waits for
launches gains what kernels say.
"""

import argparse
import warnings
from statistics import median
from time import process_time
from typing import Any

import torch

from tests.benchmarks import _timing, kernels, systems
from tests.support.kernel_count import DeviceCounts, counted
from trainables.assembly import build_model, model_config, unstacked
from trainables.training.config import train_config
from trainables.training.stacked_step import LearnerStack
from trainables.training.step import Learner, one_step
from trainables.types import Batch

REPEATS = 5


def cases(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Settings of every system that can be stacked, with every layer run."""
    found = {}
    for label, raw in systems.chosen(options).items():
        full = kernels.bounded(raw, options)
        if unstacked(model_config(full)) is None:
            found[label] = full | ({kernels.EXIT: "none"} if systems.early_exit(full) is not None else {})
    return found


def learner(raw: dict[str, Any], seed: int) -> Learner:
    """A training of the system."""
    return Learner(build_model(raw, systems.SHAPE, seed), train_config({"steps": 99}), seed=seed)


def alone(raw: dict[str, Any], batch: Batch) -> DeviceCounts:
    """What a step of one asks for; the second, since the first makes room."""
    one = learner(raw, 0)
    one_step(one, batch, 0)
    return counted(lambda: one_step(one, batch, 1))


def together(raw: dict[str, Any], batches: list[Batch]) -> DeviceCounts:
    """What a step of as many as there are batches asks for."""
    stack = LearnerStack([learner(raw, seed) for seed in range(len(batches))])
    stack.step(batches, 0)
    return counted(lambda: stack.step(batches, 1))


def seconds(raw: dict[str, Any], batches: list[Batch]) -> tuple[float, float]:
    """CPU seconds of a step of each, one after the other, and of all together."""
    apart = [learner(raw, seed) for seed in range(len(batches))]
    stack = LearnerStack([learner(raw, seed) for seed in range(len(batches))])
    times: tuple[list[float], list[float]] = ([], [])
    for step in range(1 + REPEATS):
        begin = process_time()
        for each, batch in zip(apart, batches, strict=True):
            one_step(each, batch, step)
        between = process_time()
        stack.step(batches, step)
        times[0].append(between - begin)
        times[1].append(process_time() - between)
    one, other = (median(each[1:]) for each in times)
    return one, other


def measure(label: str, raw: dict[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one system."""
    batch, rows = systems.batches(options), []
    one = alone(raw, batch)
    for members in options.members:
        batches = [batch] * members
        many, (apart_s, stacked_s) = together(raw, batches), seconds(raw, batches)
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
                "CPU s apart": apart_s,
                "CPU s together": stacked_s,
                "speed-up": apart_s / stacked_s,
            }
        )
    return rows


def main() -> None:
    found = _timing.parser(__doc__, **kernels.SIZES)
    found.add_argument("--only", nargs="+", choices=sorted(systems.systems()))
    found.add_argument("--members", nargs="+", type=int, default=[2, 4, 8])
    found.set_defaults(device="cpu")
    options = found.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    rows = [row for label, raw in cases(options).items() for row in measure(label, raw, options)]
    _timing.tell(rows, options)


if __name__ == "__main__":
    main()
