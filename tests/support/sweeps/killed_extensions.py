"""Extends a sweep again and again, each time killed one file later: `python -m ... FOLDER`, prints JSON.

A process of its own, so that it may fork: every kill is a real SIGKILL of a child, just before it opens a
file to write, makes a folder, or renames.
"""

import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

from orchestrator.execution.sweep.extend_folder import commit_extension, finish_extension
from orchestrator.execution.sweep.launch_folder import Setup, publish
from orchestrator.files.file_digests import damaged_files, find_edition
from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import read_plan
from orchestrator.plan.types import Extension
from tests.support.specs.plans import make_plan

OLD = make_plan(1, seeds=(1, 2))
ADDED = Extension(
    1.0, "haltsweep extend", OLD.spec_digest, ("confirm.seeds: 2 -> 3",), ("arm-0",), (1, 2), {}
)
NEW = replace(make_plan(1, seeds=(1, 2, 3)), extended=(ADDED,))
SPECS = ("old: 1\n", "new: 1\n")
"""As launched, and extended once."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {"os.rename", "os.mkdir", "os.remove"}


def killed_at(folder: SweepFolder, change: int) -> bool:
    """Whether the extension was killed before its change number `change`, from 1; else it is done."""
    child = os.fork()
    if child == 0:
        count = 0

        def hook(event, arguments):
            nonlocal count
            if event in CHANGES or (event == "open" and arguments[2] & WRITES):
                count += 1
                if count == change:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        commit_extension(folder, NEW, SPECS[1], {"commit": "c0ffee"})
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status)


def found(folder: SweepFolder) -> str:
    """Which plan who reads the folder now gets, with its spec."""
    plan = read_plan(folder)
    assert find_edition(folder.spec).read_text() == SPECS[len(plan.extended)]
    assert plan in (OLD, NEW)
    return "new" if plan.extended else "old"


def main(root: Path) -> None:
    """One line of JSON: what was found after each kill."""
    states = []
    for change in range(1, 1000):
        folder = SweepFolder(root / str(change) / OLD.name)
        publish(OLD, folder, SPECS[0], {}, Setup(root))
        killed = killed_at(folder, change)
        state = found(folder)
        finish_extension(folder)
        assert found(folder) == state, "who completes what was begun changes nothing"
        assert not any(damaged_files(folder.root).values())
        if state == "old":
            commit_extension(folder, NEW, SPECS[1], {})
            assert found(folder) == "new"
        shutil.rmtree(folder.root)
        states.append(state)
        if not killed:
            break
    print(json.dumps(states))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
