"""Time of a training step of every model, and the share of dropout.

    python -m tests.benchmarks.steps [--only gut crvnn] [--device cuda] ...

Models and batches are those of `tests.benchmarks.systems`, except that each model has its default dropout
rates. With `--short`, inputs have the lengths of ListOps-O. Three variants of each model take turns: with all
dropout, without dropout of attention weights, and without any. The columns "attention dropout" and "dropout"
are the shares of the step that these take.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch

from tests.benchmarks import _timing, systems
from tests.benchmarks._straightforward import training_objective, training_step
from trainables import catalog
from trainables.types import Batch

ATTENTION = "attention_dropout"


def measure(label: str, raw: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return the row of one model."""
    batch = systems.batches(options)
    rates = _rates(raw)
    full = systems.settings(raw, options, **rates)
    variants = {"all": full, "none": full | dict.fromkeys(rates, 0.0)}
    if ATTENTION in rates:
        variants["without attention's"] = full | {ATTENTION: 0.0}
    steps = {name: _step(variant, batch, options) for name, variant in variants.items()}
    seconds = _timing.time_steps(steps, options)
    total = seconds["all"]
    shares = {
        "attention dropout": 1 - seconds["without attention's"] / total if ATTENTION in rates else "-",
        "dropout": 1 - seconds["none"] / total,
    }
    return {"system": label, "step ms": 1e3 * total, **shares}


def _rates(raw: dict[str, Any]) -> dict[str, float]:
    """Return the default rates of dropout of a model, by field."""
    fields = catalog.load("models", raw["name"]).Config.model_fields
    return {name: field.default for name, field in fields.items() if name.endswith("dropout")}


def _step(full: dict[str, Any], batch: Batch, options: argparse.Namespace) -> Callable[[], None]:
    model = systems.build(full, options.device)
    return training_step(model, lambda: training_objective(model, batch))


def parser() -> argparse.ArgumentParser:
    """Return the parser of this script's options."""
    argument_parser = _timing.parser(__doc__, width=128, heads=4, batch=32, length=100, repeats=7)
    argument_parser.add_argument("--only", nargs="+", choices=sorted(systems.systems()))
    systems.add_short(argument_parser)
    argument_parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    return argument_parser


def main() -> None:
    options = parser().parse_args()
    torch.set_num_threads(options.threads)
    _timing.print_results(
        [measure(label, raw, options) for label, raw in systems.selected_models(options).items()], options
    )


if __name__ == "__main__":
    main()
