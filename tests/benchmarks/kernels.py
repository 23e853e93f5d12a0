"""Count kernels, copies, host waits and bytes of a training step of each model, in total and per layer.

    python -m tests.benchmarks.kernels [--only gut crvnn] [--width 64] [--bound 10] ...

The models are those of `tests.benchmarks.systems`. All have the same bound on layers; models without halting
run as many layers as the bound. Sequences have between a tenth of the length and the full length. Each model
is measured with and without dropout, and in each mode of early exit.

The script counts the forward and backward pass of the objective:

- kernels: operators that compute or move values; views do not count.
- copies: operators that only copy values.
- waits: operators for which the host would wait on a CUDA device.
- MB: bytes read and written.

Columns "a layer" are divided by the number of layers that the slowest sequence ran. The column "update"
includes the update of the weights and the norm of the gradient. The script measures no time, so the same
versions give the same counts on every machine.
"""

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.benchmarks import _timing, systems
from tests.benchmarks._straightforward import training_objective
from tests.support.numerics.kernel_count import DeviceCounts, count_kernels
from trainables import catalog
from trainables.assembly import build_model, model_config
from trainables.testing.exits import modes_of
from trainables.training import step
from trainables.training.config import train_config
from trainables.training.step import Learner, run_step
from trainables.types import Batch

DEPTHS = ("max_layers", "layers", "test_layers", "loops")
"""Fields that bound the layers; each field that a model has is set."""
EXIT = "early_exit"
STACKED = ("looped", "tlb")
"""Models whose `layers` are a repeated stack."""
SIZES = {"width": 64, "heads": 4, "batch": 32, "length": 100, "bound": 10}


def limit_layers(raw: dict[str, Any], options: argparse.Namespace, **changes: Any) -> dict[str, Any]:
    """Return the settings of a model under the bound, with defaults for all other fields."""
    fields = catalog.load("models", raw["name"]).Config.model_fields
    depths = [depth for depth in DEPTHS if depth != "layers" or raw["name"] not in STACKED]
    equal = {"width": options.width, "heads": options.heads, **dict.fromkeys(depths, options.bound)}
    return raw | {name: value for name, value in equal.items() if name in fields} | changes


def without_dropout(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with all rates of dropout at zero."""
    fields = catalog.load("models", raw["name"]).Config.model_fields
    return raw | {name: 0.0 for name in fields if name.endswith("dropout")}


def cases(raw: dict[str, Any], options: argparse.Namespace) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the settings of each case, by the use of dropout and the mode of early exit."""
    settings_by_case = {}
    for dropout, change in {"on": dict, "off": without_dropout}.items():
        full = change(limit_layers(raw, options))
        modes = modes_of(model_config(full)) if systems.early_exit(full) is not None else ()
        for mode in modes or ("",):
            settings_by_case[dropout, mode or "-"] = full | ({"early_exit": mode} if mode else {})
    return settings_by_case


def build_for_training(raw: dict[str, Any]) -> nn.Module:
    """Build the model in training mode."""
    return build_model(raw, systems.SHAPE, seed=0)


def training_pass(model: nn.Module, batch: Batch) -> Callable[[], None]:
    """Return a function that runs forward and backward pass of the training objective."""
    return lambda: training_objective(model, batch).mean().backward()


def update(model: nn.Module, batch: Batch) -> DeviceCounts:
    """Count the work of clipping and weight update, in the second step, because the first one allocates."""
    learner = Learner(model, train_config({"steps": 2}), seed=0)
    run_step(learner, batch, 0)
    training_pass(model, batch)()
    return count_kernels(lambda: step._update(learner, 1))


def measure(label: str, raw: dict[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of one model."""
    batch, rows = systems.batches(options), []
    for (dropout, mode), full in cases(raw, options).items():
        model = build_for_training(full)
        training_pass(model, batch)()
        model.zero_grad()
        counts = count_kernels(training_pass(model, batch))
        layers = count_layers(model, batch)
        work = {
            "kernels": counts.kernels,
            "copies": counts.copies,
            "waits": counts.waits,
            "MB": counts.bytes / 1e6,
        }
        row = {"system": label, "dropout": dropout, "early exit": mode, "layers": layers, **work}
        row |= {f"{name} a layer": count / layers for name, count in work.items()}
        rows.append(row | {"update": update(model, batch).kernels})
        if label in (options.names or ()):
            print(label, dropout, mode, dict(counts.by_name.most_common()), dict(counts.waits_by_name))
    return rows


def count_layers(model: nn.Module, batch: Batch) -> float:
    """Return the number of layers that the slowest sequence runs."""
    depths: list[torch.Tensor] = []
    hook = model.encoder.register_forward_hook(
        lambda module, inputs, encoded: depths.append(encoded.computed)
    )
    training_pass(model, batch)()
    hook.remove()
    model.zero_grad()
    return float(depths[0].max())


def parser() -> argparse.ArgumentParser:
    """Return the parser of this script's options."""
    argument_parser = _timing.parser(__doc__, **SIZES)
    argument_parser.add_argument("--only", nargs="+", choices=sorted(systems.systems()))
    argument_parser.add_argument(
        "--names", nargs="+", choices=sorted(systems.systems()), help="print the number of kernels by name"
    )
    argument_parser.set_defaults(device="cpu")
    return argument_parser


def main() -> None:
    options = parser().parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    rows = [
        row for label, raw in systems.selected_models(options).items() for row in measure(label, raw, options)
    ]
    _timing.print_results(rows, options)


if __name__ == "__main__":
    main()
