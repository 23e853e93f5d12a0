"""`haltsweep check` of many specs: processes plan them, and nobody can tell but by the time it takes."""

import _thread
import os
import signal
import sys
import threading
import time

import psutil
import pytest

from orchestrator.cli import side_by_side
from orchestrator.cli.side_by_side import may_be_copied
from tests.support.processes.commands import PATIENCE_S, TINY, Shell, answer
from tests.support.training_code.own_code import forgotten

OWN = """\
name: own
question: Does it begin?
trainable: "{module}:train"
baseline: {{lr: 0.1}}
arms:
  fast: {{why: ten times the rate, set: {{lr: 1.0}}}}
confirm: {{seeds: [1, 2], splits: []}}
"""
TRAIN = """
haltsweep = {"metrics": {"score": {"better": "max"}}}

def train(settings, trial):
    trial.report(1, {"valid/score": settings["lr"]})
"""
TALKING = "print('a user prints')\n" + TRAIN
DYING = """
import multiprocessing, os

if multiprocessing.parent_process() is not None:
    os._exit(9)
"""
CRASHING = """
import ctypes, faulthandler

faulthandler.disable()
ctypes.string_at(0)
"""
ESCAPING = "print('\\x1b[2Jgone')\n" + TRAIN
SLEEPING = """
import os, pathlib, time

pathlib.Path(f"began-{os.getpid()}").touch()
time.sleep(3600)
"""


def write(folder, **codes):
    """Specs of ours, sound and faulty, and one for each module of `codes`."""
    (folder / "sound.yaml").write_text(TINY)
    (folder / "typo.yaml").write_text(TINY.replace("width: 16", "widht: 16"))
    (folder / "profile.yaml").write_text(TINY.replace("baseline.train.steps: 2", "baseline.model.heads: 3"))
    for module, code in codes.items():
        (folder / f"{module}.py").write_text(code)
        (folder / f"{module}.yaml").write_text(OWN.format(module=module))
    return ["sound.yaml", *(f"{module}.yaml" for module in codes), "typo.yaml", "none.yaml", "profile.yaml"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "codes",
    [{"talking": TALKING}, {"dying": DYING + TRAIN}],
    ids=["talking", "dying"],
)
def test_it_says_what_one_process_says(haltsweep, tmp_path, monkeypatch, codes):
    """In their order, what own code prints too; what died beside others is looked at once more."""
    files, answers = [*write(tmp_path, **codes), "sound.yaml"], []
    for cores in (1, 2):
        monkeypatch.setattr(side_by_side, "cores", lambda cores=cores: cores)
        with forgotten(tmp_path):
            shown = haltsweep("check", *files)
        # What is planned now is said where it takes long.
        faults = [line for line in shown.err.splitlines() if not line.startswith("planning: ")]
        answers.append((shown.code, shown.out.splitlines(), faults))
    assert answers[0] == answers[1]
    code, said, faults = answers[0]
    assert code == 2
    assert [line for line in said if "yaml" in line][0::2] == ["sound.yaml: ok (and with short)"] * 2
    assert ("a user prints" in faults) == ("talking" in codes)
    shown = [line.partition(":")[0] for line in faults if line != "a user prints"]
    assert shown[:2] == ["typo.yaml", "none.yaml"]


@pytest.mark.slow
def test_code_that_ends_its_process_leaves_the_other_specs_told(haltsweep, tmp_path, monkeypatch):
    """A crash of the interpreter: nothing can be caught."""
    write(tmp_path, crashing=CRASHING, escaping=ESCAPING)
    # Few files, since each is looked at once more, in a process of its own.
    files = ("sound.yaml", "crashing.yaml", "escaping.yaml", "typo.yaml")
    monkeypatch.setattr(side_by_side, "cores", lambda: 2)
    monkeypatch.setattr(side_by_side, "SPECS_A_PROCESS", 2)
    with forgotten(tmp_path):
        shown = haltsweep("check", *files)
    assert shown.code == 2
    assert "crashing.yaml: the process that looked at it was ended, by code that it names or for" in shown.err
    assert "sound.yaml: ok" in shown.out
    assert "escaping.yaml: ok" in shown.out
    assert "\\x1b[2Jgone" in shown.err
    assert "\x1b" not in shown.out
    assert "typo.yaml:" in shown.err


@pytest.mark.skipif(side_by_side.cores() < 2, reason="with one core specs are checked one by one")
@pytest.mark.slow
def test_copies_of_the_command_say_what_it_says_itself(haltsweep, tmp_path, monkeypatch):
    """The command alone, a process without PyTorch and threads, copies itself."""
    shell = Shell.at(tmp_path)
    write(shell.folder, talking=TALKING)
    files = [*write(tmp_path, talking=TALKING), "sound.yaml"]
    copies = shell.run("check", *files)
    monkeypatch.setattr(side_by_side, "cores", lambda: 1)
    with forgotten(tmp_path):
        shown = haltsweep("check", *files)
    assert (copies.code, copies.out) == (shown.code, shown.out)
    assert copies.err.count("a user prints") == shown.err.count("a user prints") > 0


def test_a_process_with_threads_is_not_copied(monkeypatch):
    """Of which one may hold a lock, and Python counts only those that it began by its own module."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    over = threading.Event()
    _thread.start_new_thread(over.wait, ())
    try:
        assert not may_be_copied()
        assert side_by_side._way() == "spawn"
    finally:
        over.set()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.skipif(side_by_side.cores() < 2, reason="with one core specs are checked one by one")
def test_no_process_outlives_the_command(tmp_path, number):
    """On Ctrl-C, which a terminal sends to all, and when the command alone is killed."""
    shell = Shell.at(tmp_path)
    files = write(shell.folder, slow=SLEEPING, slower=SLEEPING)
    with shell.started("check", *files[1:], "typo.yaml") as process:
        until = time.monotonic() + PATIENCE_S
        while len(began := list(shell.folder.glob("began-*"))) < 2:
            assert process.poll() is None, answer(process)
            assert time.monotonic() < until
            time.sleep(0.05)
        looking = [psutil.Process(int(each.name.removeprefix("began-"))) for each in began]
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        shown = answer(process)
    assert shown.code == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in shown.err
    assert psutil.wait_procs(looking, timeout=PATIENCE_S)[1] == []
    assert ("interrupted" in shown.err) == (number == signal.SIGINT)
