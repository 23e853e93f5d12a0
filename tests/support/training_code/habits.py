"""Habits of public training scripts whose results an earlier or concurrent trial could change.

A habit returns a number that depends only on the trial's seed and level, or on neither.
"""

import argparse
import builtins
import csv
import decimal
import functools
import gc
import json
import locale
import logging
import os
import pickle
import random
import resource
import shutil
import signal
import sqlite3
import sys
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from torch import nn

best_acc1 = 0.0
rng = np.random.default_rng(0)
history: list[float] = []
arguments = argparse.Namespace(lr=1.0)


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


def global_best(settings, trial):
    global best_acc1
    best_acc1 = max(best_acc1, level(settings, trial))
    return best_acc1


def global_list(settings, trial):
    history.append(level(settings, trial))
    return max(history)


def module_generator(settings, trial):
    return float(rng.integers(1_000_000))


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


def makedirs_without_exist_ok(settings, trial):
    Path("outputs/run").mkdir(parents=True)
    return 0.0


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


def removed_outputs(settings, trial):
    shutil.rmtree("results", ignore_errors=True)
    os.makedirs("results")
    Path("results/final.json").write_text(json.dumps(level(settings, trial)))
    time.sleep(0.05)
    return json.loads(Path("results/final.json").read_text())


def database_file(settings, trial):
    with sqlite3.connect("results.db") as connection:
        connection.execute("CREATE TABLE results (value REAL)")
        connection.execute("INSERT INTO results VALUES (?)", [level(settings, trial)])
        return connection.execute("SELECT SUM(value) FROM results").fetchone()[0]


def numpy_file(settings, trial):
    np.savez("embeddings.npz", x=np.full(3, level(settings, trial)))
    time.sleep(0.05)
    return float(np.load("embeddings.npz")["x"].mean())


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


def arguments_changed(settings, trial):
    arguments.lr *= 0.5
    return arguments.lr


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


def chdir(settings, trial):
    os.makedirs("experiment", exist_ok=True)
    os.chdir("experiment")
    return float(str(Path.cwd()).count("experiment"))


def script_folder(settings, trial):
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    with open("own.log", "a") as file:
        file.write("epoch\n")
    time.sleep(0.05)
    return float(len(open("own.log").readlines()))


def environment(settings, trial):
    before = os.environ.get("MY_TRAINING_MODE", "fresh")
    os.environ["MY_TRAINING_MODE"] = "used"
    return float(before == "fresh")


def default_dtype(settings, trial):
    bits = torch.finfo(torch.zeros(1).dtype).bits
    torch.set_default_dtype(torch.float64)
    return float(bits)


def deterministic(settings, trial):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    return float(before)


def interop_threads(settings, trial):
    torch.set_num_interop_threads(2)
    return 0.0


def autocast_left_open(settings, trial):
    before = torch.is_autocast_enabled("cpu")
    torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
    return float(before)


def grad_left_off(settings, trial):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    return float(before)


def forward_patched(settings, trial):
    value = nn.Linear(1, 1, bias=False)(torch.ones(1)).isfinite().float().item()
    nn.Linear.forward = lambda self, x: x * float("nan")
    return value


def global_hook(settings, trial):
    nn.modules.module.register_module_forward_hook(lambda module, args, output: output + 1)
    layer = nn.Linear(1, 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer(torch.ones(1)).item()


def process_group(settings, trial):
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return float(torch.distributed.get_world_size())


def start_method(settings, trial):
    torch.multiprocessing.set_start_method("spawn")
    return 0.0


def logger_handlers(settings, trial):
    log = logging.getLogger("training")
    log.addHandler(logging.FileHandler("train.log"))
    log.warning("epoch")
    return float(len(log.handlers))


def warnings_as_errors(settings, trial):
    warnings.warn("a harmless warning of a library", UserWarning, stacklevel=1)
    warnings.simplefilter("error")
    return 0.0


def signal_handler(settings, trial):
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: None)
    return float(before is signal.SIG_DFL)


def alarm(settings, trial):
    signal.signal(signal.SIGALRM, lambda *_: history.append(1e9))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return max([0.0, *history])


def standard_output(settings, trial):
    was_replaced = type(sys.stdout).__name__ == "Tee"

    class Tee:
        def __init__(self, stream):
            self._stream = stream

        def write(self, text):
            return self._stream.write(text)

        def flush(self):
            self._stream.flush()

    sys.stdout = Tee(sys.stdout)
    print("epoch 1")
    return float(was_replaced)


def closed_standard_output(settings, trial):
    sys.stdout.close()
    return 0.0


def every_descriptor_limit(settings, trial):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard // 2))
    return float(hard)


def interpreter(settings, trial):
    before = gc.isenabled() * 10 + (sys.getrecursionlimit() > 5000)
    gc.disable()
    sys.setrecursionlimit(10_000)
    sys.setprofile(lambda *_: None)
    return float(before)


def contexts(settings, trial):
    before = decimal.getcontext().prec
    decimal.getcontext().prec = 5
    locale.setlocale(locale.LC_ALL, "C")
    np.set_printoptions(precision=2)
    np.seterr(all="ignore")
    return float(before)


def seeded_once(settings, trial):
    value = random.random() + np.random.rand() + torch.rand(1).item()
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    return value


def thread_left_running(settings, trial):
    def pollute():
        while True:
            history.append(1e9)
            time.sleep(0.01)

    value = max([0.0, *history])
    threading.Thread(target=pollute, daemon=True).start()
    return value


def pool_left_open(settings, trial):
    pool = ProcessPoolExecutor(2, mp_context=get_context("fork"))
    history.append(pool)
    return float(sum(pool.map(abs, [-1, -2])))


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


def figures(settings, trial):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.figure()
    value = len(plt.get_fignums()) + plt.rcParams["font.size"]
    plt.rcParams["font.size"] += 1
    plt.savefig("curve.png")
    return float(value)


def pandas_options(settings, trial):
    import pandas as pd

    before = pd.get_option("display.max_rows")
    pd.set_option("display.max_rows", 7)
    return float(before)


LEVEL_HABITS = (
    best_checkpoint,
    global_best,
    global_list,
    cache_by_fixed_name,
    removed_outputs,
    database_file,
    numpy_file,
    parent_folder,
    log_file,
)
"""Habits that measure `level`."""
CONSTANTS = {
    module_generator: float(np.random.default_rng(0).integers(1_000_000)),
    class_attribute: 0.0,
    cached_dataset_changed: 2.0,
    makedirs_without_exist_ok: 0.0,
    arguments_changed: 0.5,
    environment_cleared: 1.0,
    builtins_patched: 0.0,
    working_folder_removed: 0.0,
    thread_that_never_ends: 0.0,
    chdir: 1.0,
    script_folder: 1.0,
    environment: 1.0,
    default_dtype: 32.0,
    deterministic: 0.0,
    interop_threads: 0.0,
    autocast_left_open: 0.0,
    grad_left_off: 1.0,
    forward_patched: 1.0,
    global_hook: 1.0,
    process_group: 1.0,
    start_method: 0.0,
    logger_handlers: 1.0,
    warnings_as_errors: 0.0,
    signal_handler: 1.0,
    alarm: 0.0,
    standard_output: 0.0,
    closed_standard_output: 0.0,
    interpreter: 10.0,
    contexts: 28.0,
    thread_left_running: 0.0,
    pool_left_open: 3.0,
    data_loader_workers: 28.0,
    forked_child_returns: 0.0,
    figures: 11.0,
    pandas_options: 60.0,
}
"""Habits that measure the same number in every trial."""
OTHER_HABITS = (appended_csv, seeded_once, every_descriptor_limit)
HABITS = {habit.__name__: habit for habit in (*LEVEL_HABITS, *CONSTANTS, *OTHER_HABITS)}


def expected(habit, level_, seed):
    """Return the number that a trial must measure; None if it depends on the machine."""
    function = HABITS[habit]
    if function in CONSTANTS:
        return CONSTANTS[function]
    value = level_ + seed / 100
    return value if function in LEVEL_HABITS else 30 + value if function is appended_csv else None


def train(settings, trial):
    value = HABITS[settings["habit"]](settings, trial) if settings["habit"] != "none" else 0.0
    trial.report(1, {"valid/x": value, **({"test/x": value} if "test" in trial.splits else {})})
