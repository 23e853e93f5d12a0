"""Locks: one holder at a time, named to who waits, gone with its process, and never through a link."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from trainables.locks import is_held, locked

HOLDS = """
import sys, time
from pathlib import Path
from trainables.locks import locked
with locked(Path(sys.argv[1]), 0.0, print):
    print("held", flush=True)
    time.sleep(600)
"""


class Impatient(Exception):
    pass


def refuse(holder):
    raise Impatient(holder)


def test_who_waits_hears_of_the_holder_and_a_dead_one_holds_nothing(tmp_path):
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_held(path)
        with (
            pytest.raises(Impatient, match=rf"^process {holder.pid} on {socket.gethostname()}$"),
            locked(path, 0.1, refuse),
        ):
            pass
        holder.send_signal(signal.SIGKILL)
    assert not is_held(path)
    with locked(path, 0.0, refuse):
        assert path.read_text() == f"process {os.getpid()} on {socket.gethostname()}"


def test_without_a_file_nobody_holds_it(tmp_path):
    assert not is_held(tmp_path / "lock")


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_no_file_is_refused(tmp_path, kind):
    path, elsewhere = tmp_path / "lock", tmp_path / "precious"
    elsewhere.write_text("as it was")
    if kind == "link":
        path.symlink_to(elsewhere)
    else:
        os.mkfifo(path)
    assert not is_held(path), "and it is not waited for"
    with pytest.raises(OSError, match=r"symbolic links|must be a file"), locked(path, 0.0, refuse):
        pass
    assert elsewhere.read_text() == "as it was"
