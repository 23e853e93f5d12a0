"""Clock, options and output of results for benchmarks of models."""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch


def parser(about: str | None, **defaults: int) -> argparse.ArgumentParser:
    """Return a parser with the common options, and an integer option for each of `defaults`."""
    argument_parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    for name, default in {"threads": 1, "warm_up": 1, **defaults}.items():
        argument_parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    return argument_parser


def time_steps(steps: dict[str, Callable[[], object]], options: argparse.Namespace) -> dict[str, float]:
    """Call the steps in turns; return the median seconds of each, on a CPU as processor time."""
    clock = time.perf_counter if options.device == "cuda" else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(options.warm_up + options.repeats):
        for name, step in steps.items():
            _wait(options.device)
            started_at = clock()
            step()
            _wait(options.device)
            if number >= options.warm_up:
                seconds[name].append(clock() - started_at)
    return {name: statistics.median(samples) for name, samples in seconds.items()}


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table."""
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(_cell(row[head]) for head in heads) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_results(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Print the table, or JSON on request, with the options and the machine of the run."""
    cuda = options.device == "cuda"
    device = torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine()
    about = vars(options) | {"device name": device, "torch": torch.__version__, "load": os.getloadavg()[0]}
    as_json = about.pop("json", False)
    print(json.dumps({"about": about, "rows": rows}, indent=2) if as_json else f"{about}\n\n{table(rows)}")
