"""Training step and inference of every model on a GPU, savings by halting, and flash-attn against SDPA.

    python -m tests.benchmarks.gpu [--only gut crvnn] [--width 512] [--batch 64] [--length 200] ...

The script prints one Markdown table. All models run in 16-bit autocast. Times are medians of rounds in which
the columns take turns. Models and reference models are those of `tests.benchmarks.systems`. The script
measures nothing without a CUDA device.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.benchmarks import _timing, systems
from tests.benchmarks._straightforward import training_step
from tests.support.numerics.tensor_memory import peak_bytes
from trainables import catalog, costs
from trainables.assembly import model_config
from trainables.layers.attention.flash import flash_kernels
from trainables.layers.dropout import set_dropout_context
from trainables.types import Batch

REFUSAL = "nothing was measured: this needs a CUDA device; on a CPU run `python -m tests.benchmarks.systems`"
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


def with_autocast(call: Callable[[], Any], options: argparse.Namespace) -> Callable[[], Any]:
    """Return `call` under autocast."""

    def run() -> Any:
        with torch.autocast(options.device, dtype=PRECISIONS[options.precision]):
            return call()

    return run


def steps_of(model: nn.Module, batch: Batch, options: argparse.Namespace) -> Callable[[], None]:
    """Return a training step of a model or a reference model."""
    return training_step(model, with_autocast(systems.objective(model, batch), options))


def measure(label: str, raw: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return one row of the table."""
    batch = systems.batches(options)
    fields = catalog.load("models", raw["name"]).Config.model_fields
    kernel = next((field for field in ("kernel", "attention") if field in fields), None)
    full = systems.settings(raw, options, **({kernel: "sdpa"} if kernel else {}))
    model = systems.build(full, options.device)
    set_dropout_context(model, seed=0, step=0)
    encoded = with_autocast(lambda: model(batch).encoded, options)()
    baseline = systems.build_reference(raw, options, round(float(encoded.computed.max())))
    steps = {
        "ours": steps_of(model, batch, options),
        "plain": steps_of(baseline, batch, options),
        "inference": with_autocast(systems.inference(model, batch), options),
    }
    if systems.early_exit(full) is not None:
        slow = systems.build(full | {"early_exit": "none"}, options.device)
        steps["none"] = steps_of(slow, batch, options)
    if kernel == "attention" and options.flash:
        fast = systems.build(full | {"attention": "flash"}, options.device)
        steps["flash"] = steps_of(fast, batch, options)
    peak = peak_bytes(steps["ours"], *model.parameters())
    seconds, tokens = _timing.time_steps(steps, options), int(batch.mask.sum())
    estimate = costs.peak_memory_bytes(model_config(full), systems.SHAPE, options.batch, options.length)
    return {
        "system": label,
        "kept": float(encoded.depth.mean()),
        "run, most": float(encoded.computed.max()),
        "step ms": 1e3 * seconds["ours"],
        "tokens/s": tokens / seconds["ours"],
        "speed-up": seconds["plain"] / seconds["ours"],
        "saved": seconds.get("none", seconds["ours"]) / seconds["ours"],
        "flash gains": seconds["ours"] / seconds["flash"] if "flash" in seconds else "-",
        "inference ms": 1e3 * seconds["inference"],
        "inference tokens/s": tokens / seconds["inference"],
        "peak MiB": peak / systems.MEBI,
        "planned MiB": estimate / systems.MEBI,
    }


def main() -> None:
    parser = systems.parser()
    parser.description = __doc__
    parser.add_argument("--precision", choices=sorted(PRECISIONS), default="bf16")
    parser.set_defaults(device="cuda", width=512, heads=8, batch=64, length=200, repeats=20, warm_up=5)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print(REFUSAL, file=sys.stderr)
        return
    options.flash = bool(flash_kernels())
    rows = [measure(label, raw, options) for label, raw in systems.selected_models(options).items()]
    _timing.print_results(rows, options)


if __name__ == "__main__":
    main()
