"""What a trial's code sets for all of its process is gone when the next trial begins."""

import gc
import importlib
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import pytest
import torch

from orchestrator.drivers import worker
from orchestrator.drivers.worker import Harness
from orchestrator.process_state import ProcessState, _mask, _when_loaded
from orchestrator.trials import OutcomeKind
from trainables.function import FunctionWorkload
from trainables.protocol import Job, Measurement

SETS = {
    "dtype": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "device": (lambda: torch.set_default_device("meta"), torch.get_default_device),
    "threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), torch.get_num_threads),
    "grad mode": (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    "deterministic": (lambda: torch.set_deterministic_debug_mode("warn"), torch.get_deterministic_debug_mode),
    "cudnn": (
        lambda: setattr(torch.backends.cudnn, "benchmark", True),
        lambda: torch.backends.cudnn.benchmark,
    ),
    "precision": (lambda: torch.set_float32_matmul_precision("high"), torch.get_float32_matmul_precision),
    "environment": (lambda: os.environ.update(HALTSWEEP_OF_A_TRIAL="1", PATH=""), lambda: dict(os.environ)),
    "less environment": (lambda: os.environ.pop("PATH"), lambda: dict(os.environ)),
    "mask of files": (lambda: os.umask(0o777), _mask),
    "signals": (
        lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        lambda: signal.getsignal(signal.SIGINT),
    ),
    "garbage": (gc.disable, gc.isenabled),
    "start of processes": (
        lambda: multiprocessing.set_start_method("spawn"),
        lambda: multiprocessing.get_start_method(allow_none=True),
    ),
    "temporary files": (
        lambda: setattr(tempfile, "tempdir", "/nowhere"),
        lambda: tempfile.tempdir,
    ),
    "arguments": (lambda: setattr(sys, "argv", ["train", "--lr", "1"]), lambda: list(sys.argv)),
    "places of modules": (lambda: setattr(sys, "path", sys.path[1:]), lambda: set(sys.path)),
    "recursion": (lambda: sys.setrecursionlimit(5000), sys.getrecursionlimit),
    "root level": (
        lambda: logging.getLogger().setLevel(logging.DEBUG),
        lambda: logging.getLogger().level,
    ),
    "level": (
        lambda: logging.getLogger("trainables").setLevel(logging.CRITICAL),
        lambda: logging.getLogger("trainables").level,
    ),
    "disabled": (lambda: logging.disable(logging.ERROR), lambda: logging.root.manager.disable),
    "handlers": (
        lambda: logging.getLogger().addHandler(logging.NullHandler()),
        lambda: list(logging.getLogger().handlers),
    ),
    "warnings": (lambda: warnings.simplefilter("ignore"), lambda: list(warnings.filters)),
    "numpy errors": (lambda: np.seterr(all="raise"), np.geterr),
    "random": (random.random, random.getstate),
    "numpy": (np.random.random, lambda: np.random.get_state()[1].tolist()),  # noqa: NPY002, PLW0108
    "torch": (lambda: torch.rand(1), lambda: torch.get_rng_state().tolist()),
}
"""By what is set: how, and how it is read."""
logging.getLogger("trainables")


def trial(harness, folder, seed=3):
    harness.start(Job({}, seed=seed), folder)
    return harness.advance()


@pytest.fixture
def harness_of(monkeypatch):
    def made(train):
        monkeypatch.setattr(worker, "load_workload", lambda _: lambda job: FunctionWorkload(train, job))
        return Harness("tests:any")

    return made


@pytest.mark.parametrize("what", SETS)
@pytest.mark.parametrize("ends", ["returns", "raises", "is stopped"])
def test_the_next_trial_and_who_runs_them_find_the_process_as_it_was(what, ends, harness_of, tmp_path):
    put, read = SETS[what]
    seen = []

    def train(settings, trial):
        seen.append(read())
        put()
        if ends == "raises":
            raise RuntimeError("a fault of the trial")
        trial.report(1, {"valid/score": 1.0})
        if ends == "is stopped":
            trial.report(2, {"valid/score": 1.0})

    harness = harness_of(train)
    before = read()
    for name in ("one", "other"):
        reply = trial(harness, tmp_path / name)
        if ends == "is stopped":
            assert reply.ended is None
            harness.stop(save=False)
        elif ends == "returns":
            assert harness.advance().ended.kind is OutcomeKind.FINISHED
        assert read() == before
    assert seen[0] == seen[1]


@pytest.mark.parametrize("before", ["fork", None])
def test_how_processes_start_can_be_set_in_each_trial_whoever_set_it_before(before, harness_of, tmp_path):
    def train(settings, trial):
        multiprocessing.set_start_method("spawn")
        trial.report(1, {"valid/score": 1.0})

    found = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(before, force=True)
    try:
        harness = harness_of(train)
        for name in ("one", "other"):
            trial(harness, tmp_path / name)
            assert harness.advance().ended.kind is OutcomeKind.FINISHED
            assert multiprocessing.get_start_method(allow_none=True) == before
    finally:
        multiprocessing.set_start_method(found, force=True)


def test_a_trial_whose_constructor_fails_leaves_nothing_either(monkeypatch, tmp_path):
    def begins(job):
        os.environ["HALTSWEEP_OF_A_TRIAL"] = "1"
        raise RuntimeError("a fault of the trial")

    monkeypatch.setattr(worker, "load_workload", lambda _: begins)
    reply = trial(Harness("tests:any"), tmp_path / "one")
    assert reply.ended.kind is OutcomeKind.CRASHED
    assert "HALTSWEEP_OF_A_TRIAL" not in os.environ


def test_generators_that_are_not_seeded_draw_by_the_seed_of_the_trial(harness_of, tmp_path):
    drawn = []

    def train(settings, trial):
        drawn.append((random.random(), np.random.random(), torch.rand(1).item()))  # noqa: NPY002
        trial.report(1, {"valid/score": 1.0})

    harness = harness_of(train)
    for number, seed in enumerate((3, 4, 3)):
        trial(harness, tmp_path / str(number), seed)
    assert drawn[0] == drawn[2]
    assert all(one != other for one, other in zip(drawn[0], drawn[1], strict=True))


def test_a_state_that_two_names_of_a_precision_have_made_unreadable_is_mended(harness_of, tmp_path):
    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("this PyTorch has one name for each precision")

    def train(settings, trial):
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        trial.report(1, {"valid/score": 1.0})

    harness = harness_of(train)
    before = torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision
    trial(harness, tmp_path)
    harness.stop(save=False)
    assert (torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision) == before


def test_a_library_that_a_trial_is_the_first_to_load_is_seeded_and_put_back():
    code = """
import sys
from orchestrator.process_state import ProcessState, _mask, _when_loaded
finders = list(sys.meta_path)
state = ProcessState()
drawn = []
for seed in (5, 5, 6):
    assert seed != 5 or drawn or "torch" not in sys.modules
    state.begin(seed)
    import numpy, torch
    drawn.append((numpy.random.random(), torch.rand(1).item()))
    assert torch.get_default_dtype() is torch.float32
    torch.set_default_dtype(torch.float64)
state.end()
assert torch.get_default_dtype() is torch.float32
assert drawn[0] == drawn[1] != drawn[2], drawn
assert sys.meta_path == finders
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_several_may_wait_for_one_library(tmp_path, monkeypatch):
    (tmp_path / "awaited_by_two.py").write_text("HERE = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    heard = []
    one, two = (
        _when_loaded("awaited_by_two", lambda each=each: heard.append(each)) for each in ("one", "two")
    )
    with one, two:
        module = importlib.import_module("awaited_by_two")
    assert module.HERE
    assert sorted(heard) == ["one", "two"]
    assert "exec_module" not in vars(module.__loader__)


def test_nothing_is_done_about_a_state_that_no_trial_has_begun():
    before = dict(os.environ)
    ProcessState().end()
    assert dict(os.environ) == before


@pytest.mark.parametrize("fails", [False, True])
def test_a_copy_that_a_trial_made_of_its_process_runs_no_sweep(fails, monkeypatch, tmp_path):
    copies = []

    class Copied(FunctionWorkload):
        def advance(self):
            copies.append(os.fork())
            if fails and not copies[-1]:
                raise RuntimeError("of the copy alone")
            return Measurement(1, 0.0, {"valid/score": 1.0})

    monkeypatch.setattr(worker, "load_workload", lambda _: lambda job: Copied(print, job))
    reply = trial(Harness("tests:any"), tmp_path)
    assert reply.measurement.step == 1
    _, status = os.waitpid(copies[0], 0)
    assert os.waitstatus_to_exitcode(status) == fails
