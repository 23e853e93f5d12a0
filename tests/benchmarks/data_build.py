"""What making and reading ListOps-O costs: each split built alone in a fresh process, then read from the map.

Usage: python tests/benchmarks/data_build.py
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from trainables import tasks
from trainables.data.order import Bucketed, batch_indices, evaluation_batches, padding_share
from trainables.data.store import open_split, split_path

CONFIG = tasks.task_config({"name": "listops"})
BATCH = 128


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def build(split: str, data_dir: Path) -> None:
    """Prints seconds, and memory on top of the imported libraries."""
    before, start = peak_mib(), time.perf_counter()
    open_split(CONFIG, split, data_dir)
    print(f"{time.perf_counter() - start:.2f} | {peak_mib() - before:.0f}")


def seconds_each(work: list[object]) -> float:
    start = time.perf_counter()
    for one in work:
        assert callable(one)
        one()
    return (time.perf_counter() - start) / len(work)


def main(data_dir: Path) -> None:
    print("| split | examples | tokens | build s | peak MiB over imports | file MiB | open ms | verify ms |")
    print("|---|---|---|---|---|---|---|---|")
    for info in tasks.splits(CONFIG):
        command = [sys.executable, __file__, info.name, str(data_dir)]
        built = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        split = open_split(CONFIG, info.name, data_dir)
        opened = seconds_each([lambda name=info.name: open_split(CONFIG, name, data_dir)] * 20)
        verified = seconds_each([split.verify] * 5)
        size = split_path(CONFIG, info.name, data_dir).stat().st_size / 2**20
        print(
            f"| {info.name} | {len(split)} | {split.lengths.sum()} | {built} | {size:.1f} "
            f"| {opened * 1e3:.2f} | {verified * 1e3:.1f} |",
            flush=True,
        )
    train = open_split(CONFIG, "train", data_dir)
    steps = range(len(train) // BATCH)
    plain = [batch_indices(len(train), BATCH, 0, step) for step in steps]
    bucketed = Bucketed(train.lengths, BATCH, 0)
    orders = {
        "random": plain,
        "bucketed": [bucketed.batch_indices(step) for step in steps],
        "evaluation": list(evaluation_batches(train.lengths, BATCH)),
    }
    print(f"\n| order of train, batches of {BATCH} | padding | read and pad, us a batch |\n|---|---|---|")
    for name, batches in orders.items():
        spent = seconds_each(
            [lambda indices=indices: train.batch(np.asarray(indices)) for indices in batches]
        )
        print(f"| {name} | {padding_share(train.lengths, batches):.1%} | {spent * 1e6:.0f} |")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        build(sys.argv[1], Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
