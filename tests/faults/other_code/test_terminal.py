"""Ctrl-C on a terminal: what was heard stands above the table, which is drawn once."""

import os
import pty
import select
import subprocess
import sys
import time

from tests.support.processes.commands import PATIENCE_S

DRAWING = """
import os, signal, sys, threading, time
from orchestrator.cli.display.progress import View
from orchestrator.execution.signals import interrupts
from orchestrator.execution.live_view import Snapshot
from orchestrator.conductor.conductor import Conductor
from tests.support.specs.plans import make_plan

plan = make_plan(2)
view = View(plan)
heard = threading.Event()

def told(what):
    view.show_interrupt(what)
    heard.set()

with interrupts(told) as signals, view, signals.draining():
    view.show(Snapshot(Conductor(plan).progress(), 0.0, ""))
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
    heard.wait(60)
    time.sleep(0.5)
print("over")
"""


def test_what_was_heard_stands_above_the_table_and_nothing_of_it_stays(monkeypatch):
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, "-c", DRAWING], stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    seen, until = b"", time.monotonic() + PATIENCE_S
    while time.monotonic() < until and select.select([master], [], [], PATIENCE_S)[0]:
        try:
            seen += os.read(master, 65536)
        except OSError:  # all is said
            break
    os.close(master)
    assert process.wait(PATIENCE_S) == 0
    screen = shown(seen.decode())
    assert screen[0].startswith("stopping: running trials are saved at their next report")
    assert [line for line in screen if line] == [screen[0], "over"]


def shown(written: str) -> list[str]:
    """What a terminal shows of it: lines, carriage returns, moves up, and erased lines."""
    lines, row, at, rest = [""], 0, 0, written
    while rest:
        if rest.startswith("\x1b["):
            end = next(index for index, char in enumerate(rest[2:], 2) if char.isalpha())
            count, kind, rest = rest[2:end], rest[end], rest[end + 1 :]
            if kind == "A":
                row -= int(count or 1)
            elif kind == "K":
                lines[row] = ""
            continue
        char, rest = rest[0], rest[1:]
        if char == "\n":
            row += 1
            lines += [""] * (row - len(lines) + 1)
        elif char == "\r":
            at = 0
        else:
            lines[row] = lines[row].ljust(at)[:at] + char + lines[row][at + 1 :]
            at += 1
    return lines
