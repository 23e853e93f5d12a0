"""Ctrl-C while modules are loaded, and where code swallows it: no traceback, and the command ends."""

import subprocess
import sys

import pytest

from tests.support.processes.commands import PATIENCE_S

LOADING = """
import importlib.abc, os, signal, sys
class AtOnce(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "typer":
            swallowed = {swallowed}
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                if not swallowed:
                    raise
                raise AttributeError("half a module was loaded") from None
sys.meta_path.insert(0, AtOnce())
from orchestrator.cli.entry import run
run()
"""
COLLECTED = """
import os, signal, time, weakref
from orchestrator.cli.ctrl_c import handle_ctrl_c, was_pressed
class Thing:
    pass
handle_ctrl_c()
thing = Thing()
kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
assert not was_pressed()
try:
    del thing
    time.sleep({patience})
except KeyboardInterrupt:
    assert was_pressed()
    print("raised again")
"""
FAILING = """
import os, signal, sys
from orchestrator.cli import main
from orchestrator.cli.commands import status
def fails(*_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        pass
    raise AttributeError("half a module was loaded")
status.runs_root = fails
sys.argv = ["haltsweep", "status", "x"]
main.run()
"""
IGNORED = """
import signal
from orchestrator.cli.ctrl_c import handle_ctrl_c
signal.signal(signal.SIGINT, signal.SIG_IGN)
handle_ctrl_c()
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""


def reported(script, folder):
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("swallowed", [False, True])
def test_ctrl_c_during_imports_exits_with_130(tmp_path, swallowed):
    done = reported(LOADING.format(swallowed=swallowed), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_ctrl_c_in_a_garbage_collector_callback_is_not_lost(tmp_path):
    done = reported(COLLECTED.format(patience=PATIENCE_S), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "raised again\n", "")


def test_an_error_after_ctrl_c_is_reported_as_an_interrupt(tmp_path):
    done = reported(FAILING, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_an_ignored_ctrl_c_stays_ignored(tmp_path):
    assert reported(IGNORED, tmp_path).returncode == 0
