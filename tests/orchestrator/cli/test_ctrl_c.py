"""Ctrl-C during imports and in code that swallows it: the command ends without a traceback."""

import subprocess
import sys

import pytest

from tests.support.processes.commands import PATIENCE_S

IMPORT_SCRIPT = """
import importlib.abc, os, signal, sys
class InterruptingFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "typer":
            is_swallowed = {is_swallowed}
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                if not is_swallowed:
                    raise
                raise AttributeError("half a module was loaded") from None
sys.meta_path.insert(0, InterruptingFinder())
from orchestrator.cli.entry import run
run()
"""
COLLECTION_SCRIPT = """
import os, signal, time, weakref
from orchestrator.cli.ctrl_c import handle_ctrl_c, was_interrupted
class Target:
    pass
handle_ctrl_c()
target = Target()
reference = weakref.ref(target, lambda _: os.kill(os.getpid(), signal.SIGINT))
assert not was_interrupted()
try:
    del target
    time.sleep({patience})
except KeyboardInterrupt:
    assert was_interrupted()
    print("raised again")
"""


def run_script(script, folder):
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("is_swallowed", [False, True])
def test_ctrl_c_during_imports_exits_with_130(tmp_path, is_swallowed):
    process = run_script(IMPORT_SCRIPT.format(is_swallowed=is_swallowed), tmp_path)
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "interrupted\n")


def test_ctrl_c_in_a_garbage_collector_callback_is_raised_again(tmp_path):
    process = run_script(COLLECTION_SCRIPT.format(patience=PATIENCE_S), tmp_path)
    assert (process.returncode, process.stdout, process.stderr) == (0, "raised again\n", "")
