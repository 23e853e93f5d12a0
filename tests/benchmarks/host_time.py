"""Work of the host in one training step of every model, at sizes whose kernels take almost no time.

    python -m tests.benchmarks.host_time [--only gut crvnn] [--width 16] [--repeats 60] [--json] ...

Systems are those of `tests.benchmarks.kernels`, with dropout, in each way to save work of what has halted.
A step is the forward and backward pass of the objective. "Calls" are those of Python functions and of what
they call in C, as `cProfile` counts them: the same versions give the same figures on every machine. On a CPU
the clock counts processor time; "fastest" is the least of all repeats, which other processes disturb least.
"""

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.benchmarks import _timing, kernels, systems
from trainables.types import Batch

SIZES = {"width": 16, "heads": 2, "batch": 4, "length": 12, "bound": 10, "repeats": 60}
WARM_UP = 4
"""Steps before the measurement: they fill caches that last for several steps."""


def forward_and_backward(model: nn.Module, batch: Batch) -> Callable[[], None]:
    """Return a function that runs forward and backward pass with new gradients."""
    weights, passes = list(model.parameters()), kernels.passes(model, batch)

    def step() -> None:
        for each in weights:
            each.grad = None
        passes()

    return step


def calls(step: Callable[[], None]) -> int:
    """Return the number of function calls in one step, including the step."""
    profile = cProfile.Profile()
    profile.enable()
    step()
    profile.disable()
    return int(pstats.Stats(profile).total_calls)


def milliseconds(step: Callable[[], None], options: argparse.Namespace) -> list[float]:
    """Return the milliseconds of each repeat."""
    clock = time.perf_counter if options.device == "cuda" else time.process_time
    durations = []
    for _ in range(options.repeats):
        begin = clock()
        step()
        if options.device == "cuda":
            torch.cuda.synchronize()
        durations.append(1e3 * (clock() - begin))
    return sorted(durations)


def measure(label: str, raw: dict[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of one model."""
    batch, rows = systems.batches(options), []
    for (dropout, mode), full in kernels.cases(raw, options).items():
        if dropout == "off":
            continue
        model = systems.build(full, options.device).train()
        step, layers = forward_and_backward(model, batch), kernels.layers_run(model, batch)
        for _ in range(WARM_UP):
            step()
        row: dict[str, Any] = {"system": label, "early exit": mode, "layers": layers, "calls": calls(step)}
        if options.repeats:
            durations = milliseconds(step, options)
            row |= {"ms, fastest": durations[0], "ms, median": durations[len(durations) // 2]}
        rows.append(row)
    return rows


def parser() -> argparse.ArgumentParser:
    """Return the parser of this script's options."""
    argument_parser = _timing.parser(__doc__, **SIZES)
    argument_parser.add_argument("--only", nargs="+", choices=sorted(systems.systems()))
    argument_parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    argument_parser.add_argument("--json", action="store_true")
    return argument_parser


def main() -> None:
    kernels.print_measurements(parser().parse_args(), measure)


if __name__ == "__main__":
    main()
