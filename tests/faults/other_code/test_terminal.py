"""After Ctrl-C on a terminal, the message is above the table, which is drawn once."""

import os
import pty
import select
import subprocess
import sys
import time

from tests.support.processes.commands import PATIENCE_S

DRAWING_CODE = """
import os, signal, sys, threading, time
from orchestrator.cli.display.progress import View
from orchestrator.execution.signals import interrupts
from orchestrator.execution.live_view import Snapshot
from orchestrator.conductor.conductor import Conductor
from tests.support.specs.plans import make_plan

plan = make_plan(2)
view = View(plan)
interrupted = threading.Event()

def show_message(text):
    view.show_interrupt(text)
    interrupted.set()

with interrupts(show_message) as signals, view, signals.draining():
    view.show(Snapshot(Conductor(plan).progress(), 0.0, ""))
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
    interrupted.wait(60)
    time.sleep(0.5)
print("over")
"""


def test_interrupt_message_is_above_the_table_and_the_table_is_erased(monkeypatch):
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, "-c", DRAWING_CODE], stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    output, deadline = b"", time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and select.select([master], [], [], PATIENCE_S)[0]:
        try:
            output += os.read(master, 65536)
        except OSError:  # the terminal is closed
            break
    os.close(master)
    assert process.wait(PATIENCE_S) == 0
    lines = render_screen(output.decode())
    assert lines[0].startswith("stopping: running trials are saved at their next report")
    assert [line for line in lines if line] == [lines[0], "over"]


def render_screen(written: str) -> list[str]:
    """Return the lines that a terminal shows after line feeds, returns, moves up and erased lines."""
    lines, row, column, remaining = [""], 0, 0, written
    while remaining:
        if remaining.startswith("\x1b["):
            end = next(index for index, char in enumerate(remaining[2:], 2) if char.isalpha())
            count, kind, remaining = remaining[2:end], remaining[end], remaining[end + 1 :]
            if kind == "A":
                row -= int(count or 1)
            elif kind == "K":
                lines[row] = ""
            continue
        char, remaining = remaining[0], remaining[1:]
        if char == "\n":
            row += 1
            lines += [""] * (row - len(lines) + 1)
        elif char == "\r":
            column = 0
        else:
            lines[row] = lines[row].ljust(column)[:column] + char + lines[row][column + 1 :]
            column += 1
    return lines
