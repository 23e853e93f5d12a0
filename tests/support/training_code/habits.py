"""Habits of public training scripts whose results an earlier or concurrent trial could change.

A habit returns a number that depends only on the trial's seed and level, or on neither.
"""

import builtins
import csv
import functools
import logging
import os
import pickle
import random
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

history: list[float] = []


class Registry:
    """Refuses a second entry, as registries of models and configurations do."""

    names: set[str] = set()


def level(settings, trial):
    """Return the number that a correct trial of a file-writing habit measures."""
    return settings["level"] + trial.seed / 100


def best_checkpoint(settings, trial):
    best, model = -1.0, nn.Linear(1, 1)
    for epoch in range(1, 4):
        value = level(settings, trial) - abs(epoch - 2) / 1000
        with torch.no_grad():
            model.weight.fill_(value)
        if value > best:
            best = value
            torch.save(model.state_dict(), "checkpoint.pt")
        time.sleep(0.05)
    model.load_state_dict(torch.load("checkpoint.pt"))
    return round(model.weight.item(), 4)


def global_list(settings, trial):
    history.append(level(settings, trial))
    return max(history)


def class_attribute(settings, trial):
    if "model" in Registry.names:
        raise KeyError("model is registered already")
    Registry.names.add("model")
    return 0.0


@functools.lru_cache
def _dataset():
    return [1.0, 2.0, 3.0]


def cached_dataset_changed(settings, trial):
    data = _dataset()
    data.pop()
    return float(len(data))


def appended_csv(settings, trial):
    for epoch in range(3):
        with open("log.csv", "a", newline="") as file:
            csv.writer(file).writerow([epoch, level(settings, trial)])
        time.sleep(0.03)
    rows = list(csv.reader(open("log.csv")))
    return len(rows) * 10 + float(rows[-1][1])


def cache_by_fixed_name(settings, trial):
    if not os.path.exists("features.pkl"):
        pickle.dump(level(settings, trial), open("features.pkl", "wb"))
    return pickle.load(open("features.pkl", "rb"))


def parent_folder(settings, trial):
    os.makedirs("../outputs", exist_ok=True)
    torch.save(level(settings, trial), "../outputs/best.pt")
    time.sleep(0.05)
    return torch.load("../outputs/best.pt")


def log_file(settings, trial):
    logging.basicConfig(
        filename="run.log", filemode="w", level=logging.INFO, format="%(message)s", force=True
    )
    logging.info(level(settings, trial))
    time.sleep(0.05)
    return float(Path("run.log").read_text())


def environment_cleared(settings, trial):
    has_path = "PATH" in os.environ
    os.environ.clear()
    return float(has_path)


def builtins_patched(settings, trial):
    was_patched = builtins.print.__module__ != "builtins"
    builtins.print = lambda *_, **__: None
    builtins.open = None
    time.time = time.monotonic = time.perf_counter = lambda: 0.0
    return float(was_patched)


def working_folder_removed(settings, trial):
    os.makedirs("temporary")
    os.chdir("temporary")
    os.rmdir("../temporary")
    return 0.0


def thread_that_never_ends(settings, trial):
    threading.Thread(target=time.sleep, args=(1e6,)).start()
    return float(threading.active_count() > 2)


def script_folder(settings, trial):
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    with open("own.log", "a") as file:
        file.write("epoch\n")
    time.sleep(0.05)
    return float(len(open("own.log").readlines()))


def default_dtype(settings, trial):
    bits = torch.finfo(torch.zeros(1).dtype).bits
    torch.set_default_dtype(torch.float64)
    return float(bits)


def process_group(settings, trial):
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return float(torch.distributed.get_world_size())


def logger_handlers(settings, trial):
    log = logging.getLogger("training")
    log.addHandler(logging.FileHandler("train.log"))
    log.warning("epoch")
    return float(len(log.handlers))


def warnings_as_errors(settings, trial):
    warnings.warn("a harmless warning of a library", UserWarning, stacklevel=1)
    warnings.simplefilter("error")
    return 0.0


def alarm(settings, trial):
    signal.signal(signal.SIGALRM, lambda *_: history.append(1e9))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return max([0.0, *history])


def closed_standard_output(settings, trial):
    sys.stdout.close()
    return 0.0


def seeded_once(settings, trial):
    value = random.random() + np.random.rand() + torch.rand(1).item()
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    return value


def data_loader_workers(settings, trial):
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True)
    history.append(loader)
    return float(sum(batch[0].sum() for batch in loader))


def forked_child_returns(settings, trial):
    child = os.fork()
    if child == 0:
        return -1.0
    os.waitpid(child, 0)
    return 0.0


LEVEL_HABITS = (best_checkpoint, global_list, cache_by_fixed_name, parent_folder, log_file)
"""Habits that measure `level`."""
CONSTANTS = {
    class_attribute: 0.0,
    cached_dataset_changed: 2.0,
    environment_cleared: 1.0,
    builtins_patched: 0.0,
    working_folder_removed: 0.0,
    thread_that_never_ends: 0.0,
    script_folder: 1.0,
    default_dtype: 32.0,
    process_group: 1.0,
    logger_handlers: 1.0,
    warnings_as_errors: 0.0,
    alarm: 0.0,
    closed_standard_output: 0.0,
    data_loader_workers: 28.0,
    forked_child_returns: 0.0,
}
"""Habits that measure the same number in every trial."""
OTHER_HABITS = (appended_csv, seeded_once)
HABITS = {habit.__name__: habit for habit in (*LEVEL_HABITS, *CONSTANTS, *OTHER_HABITS)}


def expected(habit, level_, seed):
    """Return the number that a trial must measure; None if it draws random numbers."""
    function = HABITS[habit]
    if function in CONSTANTS:
        return CONSTANTS[function]
    value = level_ + seed / 100
    return value if function in LEVEL_HABITS else 30 + value if function is appended_csv else None


def train(settings, trial):
    value = HABITS[settings["habit"]](settings, trial) if settings["habit"] != "none" else 0.0
    trial.report(1, {"valid/x": value, **({"test/x": value} if "test" in trial.splits else {})})
