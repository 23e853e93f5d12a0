"""Does reading keep up with training? Tokens a second of the loader and of the step that eats them.

    python -m tests.benchmarks.loader [--only listops-o flipflop] [--small]

For the baseline of every spec in `experiments`, in its small profile and, with a GPU, as published: the
training split in random and in bucketed order (index, gather, pad, on one thread), the share of padding, and
the training step of the spec's own model on its own batches, on the GPU if there is one. Reading and training
take turns; on a CPU the clock counts processor time, and of a large batch only a part is trained on. Padding
is no token. Data sets are cut to 20,000 examples, which changes nothing about the speed of reading them.
Tasks whose published files are not there have stand-ins: random tokens, all lengths that the task allows as
frequent.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import torch

from orchestrator.plan.arms import resolve
from orchestrator.plan.faults import Faults
from orchestrator.plan.training_code.settings import System
from orchestrator.spec.load import profile_names, read_spec
from trainables.assembly import build_model
from trainables.data.draws import below
from trainables.data.order import Bucketed, TokenBatches, batch_indices, padding_share
from trainables.data.ragged import offsets_of
from trainables.data.split import Split
from trainables.data.store import open_split
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_catalog import require_files, splits, stream, task_config, task_name
from trainables.training.step import Learner, one_step
from trainables.types import Batch

EXAMPLES = 20_000
SIZES = ("train_examples", "trees", "pairs")
BATCHES = 64
STEPS = 3
TRAINED_TOKENS = 2_048
"""Of a batch, padding counted, at least one example of it, on a CPU. A GPU takes all."""
STAND_IN_TOKENS = 4_000_000
SEED = 0
WHOLE = 10**9
"""Rows: more than any batch has."""
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def systems(only: list[str], *, small: bool) -> Iterator[tuple[str, System, bool]]:
    """The baseline of each spec and whether to train it: small and, unless that is enough, as published.

    Where the small profile has another task, that of the published settings is read at least.
    """
    for path in sorted(EXPERIMENTS.glob("*.yaml")):
        if only and path.stem not in only:
            continue
        found = {profile: _baseline(path, profile) for profile in (None, *profile_names(path))}
        chosen = [profile for profile in (None, "small") if profile in found]
        names = {task_name(found[profile].task) for profile in chosen}
        for profile in chosen:
            trained = profile is not None or not small or len(chosen) == 1
            if trained or len(names) > 1:
                yield f"{path.stem}{' (small)' if profile else ''}", found[profile], trained


def _baseline(path: Path, profile: str | None) -> System:
    source = read_spec(path, (), profile)
    faults = Faults(source)
    system = resolve(source.spec, faults)[0].system
    faults.raise_if_any()
    return system


def stand_in(system: System) -> Split:
    """Random examples of the shape of a task that reads files."""
    shape, stream = system.shape, numpy_stream(SEED, "stand-in")
    info = next(info for info in splits(system.task) if info.role == "train")
    n = min(EXAMPLES, STAND_IN_TOKENS // info.length_max)
    tokens = _rows(stream, n, (info.length_min, info.length_max), shape.vocabulary_size, shape.separator_id)
    if shape.head == "sequence":
        answers = _rows(stream, n, (1, shape.answer_length_max - 1), shape.num_classes)
        return Split(pa.table({"tokens": tokens, "answer": answers}), shape.pad_id, "", shape.end_id)
    labels = pa.array(below(stream, n, shape.num_classes).astype(np.int16))
    return Split(pa.table({"tokens": tokens, "label": labels}), shape.pad_id, "")


def _rows(
    stream: np.random.Generator, n: int, lengths: tuple[int, int], ids: int, middle: int | None = None
) -> pa.LargeListArray:
    """Rows of ids that are no marks, with `middle` in the midst of each if it is given."""
    offsets = offsets_of(lengths[0] + below(stream, n, lengths[1] - lengths[0] + 1))
    values = (2 + below(stream, int(offsets[-1]), ids - 4)).astype(np.uint16)
    if middle is not None:
        values[(offsets[:-1] + offsets[1:]) // 2] = middle
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))


def orders(system: System, data_dir: Path) -> dict[str, tuple[Callable[[int, int], Batch], float | None]]:
    """How the first rows of the batch of a step are made, and the share of padding, for each order."""
    train, size = system.train, system.train.batch_size
    if next(info for info in splits(system.task) if info.role == "train").streamed:
        return {"streamed": (lambda step, rows: stream(system.task, min(rows, size), SEED, step), None)}
    settings = system.task.model_dump(mode="json")
    cut = {name: min(settings[name] or EXAMPLES, EXAMPLES) for name in SIZES if name in settings}
    config = task_config(settings | cut)
    split = stand_in(system) if needs_files(config) else open_split(config, "train", data_dir)
    found = {
        "random": lambda step: batch_indices(len(split), size, SEED, step),
        "bucketed": Bucketed(split.lengths, size, SEED).batch_indices,
    }
    if train.batch_tokens is not None:
        found = {"by tokens": TokenBatches(split.sizes, train.batch_tokens, SEED).batch_indices}
    return {
        name: (
            lambda step, rows, indices=indices: split.batch(indices(step)[:rows]),
            padding_share(split.lengths, [indices(step) for step in range(BATCHES)]),
        )
        for name, indices in found.items()
    }


def needs_files(config: Settings) -> bool:
    """Whether the task reads files that are not there."""
    try:
        require_files(config)
    except ValueError:
        return True
    return False


def trained_rows(batch: Batch, device: torch.device) -> int:
    """Rows of the part of a batch that is trained on."""
    rows, columns = batch.tokens.shape
    return rows if device.type == "cuda" else min(rows, max(1, TRAINED_TOKENS // columns))


def spent(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the device that does the work."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    begin = clock()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - begin


def measure(
    label: str, system: System, data_dir: Path, device: torch.device, *, trained: bool
) -> Iterator[str]:
    """One row of the table for each order."""
    learner = None
    if trained:
        learner = Learner(build_model(system.model, system.shape, SEED, device), system.train, seed=SEED)
    task = f"{task_name(system.task)}{', stand-in' if needs_files(system.task) else ''}"
    size = system.train.batch_tokens or system.train.batch_size
    for order, (make, padding) in orders(system, data_dir).items():
        read, eaten = [], []
        for step in range(STEPS + 1):  # the first one warms up
            for number in range(step * BATCHES, (step + 1) * BATCHES):
                begin = time.process_time()
                batch = make(number, WHOLE)
                read.append(int(batch.mask.sum()) / (time.process_time() - begin))
            if learner is not None:
                batch = make(step, trained_rows(make(step, WHOLE), device)).to(device)
                tokens = int(batch.mask.sum())
                eaten.append(tokens / spent(partial(one_step, learner, batch, step), device))
        rate = median(read[BATCHES:])
        demand = f"{median(eaten[1:]):,.0f} | {rate / median(eaten[1:]):,.0f}" if eaten else "- | -"
        yield (
            f"| {label} | {task} | {vars(system.model)['name']} | {size:,} | {order} "
            f"| {'-' if padding is None else f'{padding:.1%}'} | {rate:,.0f} | {demand} |"
        )


def main() -> None:
    """Print one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="these specs, as published on a CPU too")
    parser.add_argument("--small", action="store_true", help="small profiles alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or "cpu"
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"trained on {name}; {load}; torch {torch.__version__}\n")
    titles = ("spec", "task", "model", "batch", "order", "padding", "loader tokens/s", "training tokens/s")
    print(f"| {' | '.join(titles)} | loader/training |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        small = options.small or (device.type == "cpu" and not options.only)
        for label, system, trained in systems(options.only, small=small):
            for row in measure(label, system, Path(folder), device, trained=trained):
                print(row, flush=True)


if __name__ == "__main__":
    main()
