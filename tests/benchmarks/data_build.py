"""What making and reading data costs: ListOps-O, each split, and 10,000 pathfinder images.

Each split is built alone in a fresh process, then read from the map.

Usage: python tests/benchmarks/data_build.py
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from trainables import task_catalog
from trainables.data.order import Bucketed, batch_indices, evaluation_batches, padding_share
from trainables.data.store import open_split, split_path
from trainables.settings import Settings

LISTOPS = task_catalog.task_config({"name": "listops"})
PATHFINDER = task_catalog.task_config({"name": "pathfinder", "train_examples": 10_000})
BATCH = 128


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def build(task: str, split: str, data_dir: Path) -> None:
    """Prints seconds, seconds of one core, and memory on top of the imported libraries."""
    config = {"listops": LISTOPS, "pathfinder": PATHFINDER}[task]
    before, start, worked = peak_mib(), time.perf_counter(), time.process_time()
    open_split(config, split, data_dir)
    spent = time.perf_counter() - start, time.process_time() - worked
    print(f"{spent[0]:.2f} | {spent[1]:.2f} | {peak_mib() - before:.0f}")


def seconds_each(work: list[object]) -> float:
    start = time.perf_counter()
    for one in work:
        assert callable(one)
        one()
    return (time.perf_counter() - start) / len(work)


def main(data_dir: Path) -> None:
    columns = (
        "task, split, examples, tokens, build s, CPU s, peak MiB over imports, file MiB, open ms, verify ms"
    )
    print(f"| {columns.replace(', ', ' | ')} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for info in task_catalog.splits(LISTOPS):
        show(LISTOPS, info.name, data_dir)
    show(PATHFINDER, "train", data_dir)
    orders(data_dir)


def show(config: Settings, name: str, data_dir: Path) -> None:
    """One row of the table."""
    task = task_catalog.task_name(config)
    command = [sys.executable, __file__, task, name, str(data_dir)]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    split = open_split(config, name, data_dir)
    opened = seconds_each([lambda: open_split(config, name, data_dir)] * 20)
    verified = seconds_each([split.verify] * 5)
    size = split_path(config, name, data_dir).stat().st_size / 2**20
    print(
        f"| {task} | {name} | {len(split)} | {split.lengths.sum()} | {built} | {size:.1f} "
        f"| {opened * 1e3:.2f} | {verified * 1e3:.1f} |",
        flush=True,
    )


def orders(data_dir: Path) -> None:
    """What reading ListOps-O costs in each order."""
    train = open_split(LISTOPS, "train", data_dir)
    steps = range(len(train) // BATCH)
    plain = [batch_indices(len(train), BATCH, 0, step) for step in steps]
    bucketed = Bucketed(train.lengths, BATCH, 0)
    kinds = {
        "random": plain,
        "bucketed": [bucketed.batch_indices(step) for step in steps],
        "evaluation": list(evaluation_batches(train.lengths, BATCH)),
    }
    print(f"\n| order of train, batches of {BATCH} | padding | read and pad, us a batch |\n|---|---|---|")
    for name, batches in kinds.items():
        spent = seconds_each(
            [lambda indices=indices: train.batch(np.asarray(indices)) for indices in batches]
        )
        print(f"| {name} | {padding_share(train.lengths, batches):.1%} | {spent * 1e6:.0f} |")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        build(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
