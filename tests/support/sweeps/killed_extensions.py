"""Extend a sweep repeatedly; each extension is killed one file operation later than the one before.

`python -m tests.support.sweeps.killed_extensions FOLDER` prints the states as JSON. The script forks a child
for each extension. SIGKILL ends the child just before it writes, creates, renames or removes a file.
"""

import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

from orchestrator.execution.sweep.extend_folder import commit_extension, finish_extension
from orchestrator.execution.sweep.launch_folder import Setup, create_sweep_folder
from orchestrator.files.file_digests import damaged_files, find_edition
from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import read_plan
from orchestrator.plan.types import Extension
from tests.support.specs.plans import make_plan

OLD_PLAN = make_plan(1, seeds=(1, 2))
EXTENSION = Extension(
    1.0, "haltsweep extend", OLD_PLAN.spec_digest, ("confirm.seeds: 2 -> 3",), ("arm-0",), (1, 2), {}
)
NEW_PLAN = replace(make_plan(1, seeds=(1, 2, 3)), extended=(EXTENSION,))
SPECS = ("old: 1\n", "new: 1\n")
"""Text of the spec as launched, and after one extension."""
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGE_EVENTS = {"os.rename", "os.mkdir", "os.remove"}


def extend_until_change(folder: SweepFolder, change: int) -> bool:
    """Extend in a child that is killed before its `change`-th change; return whether it was killed."""
    child = os.fork()
    if child == 0:
        count = 0

        def hook(event, arguments):
            nonlocal count
            if event in CHANGE_EVENTS or (event == "open" and arguments[2] & WRITE_FLAGS):
                count += 1
                if count == change:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        commit_extension(folder, NEW_PLAN, SPECS[1], {"commit": "c0ffee"})
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status)


def read_state(folder: SweepFolder) -> str:
    """Return whether a reader of the folder gets the old or the new plan, and check the spec."""
    plan = read_plan(folder)
    assert find_edition(folder.spec).read_text() == SPECS[len(plan.extended)]
    assert plan in (OLD_PLAN, NEW_PLAN)
    return "new" if plan.extended else "old"


def main(root: Path) -> None:
    """Print one line of JSON: the state after each kill."""
    states = []
    for change in range(1, 1000):
        folder = SweepFolder(root / str(change) / OLD_PLAN.name)
        create_sweep_folder(OLD_PLAN, folder, SPECS[0], {}, Setup(root))
        killed = extend_until_change(folder, change)
        state = read_state(folder)
        finish_extension(folder)
        assert read_state(folder) == state, "finishing an extension must not change the plan"
        assert not any(damaged_files(folder.root).values())
        if state == "old":
            commit_extension(folder, NEW_PLAN, SPECS[1], {})
            assert read_state(folder) == "new"
        shutil.rmtree(folder.root)
        states.append(state)
        if not killed:
            break
    print(json.dumps(states))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
