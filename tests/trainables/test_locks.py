"""A lock has one holder, names it to waiting processes, ends with its process, and follows no link."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from trainables.locks import hold_lock, is_held

HOLDER_CODE = """
import sys, time
from pathlib import Path
from trainables.locks import hold_lock
with hold_lock(Path(sys.argv[1]), 0.0, print):
    print("held", flush=True)
    time.sleep(600)
"""


class LockTimeout(Exception):
    pass


def refuse(holder):
    raise LockTimeout(holder)


def test_waiting_process_gets_the_holder_and_death_releases_the_lock(tmp_path):
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER_CODE, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        assert is_held(path)
        with (
            pytest.raises(LockTimeout, match=f"process {holder.pid} .*{socket.gethostname()}"),
            hold_lock(path, 0.1, refuse),
        ):
            pass
        holder.send_signal(signal.SIGKILL)
    assert not is_held(path)
    with hold_lock(path, 0.0, refuse):
        assert f"process {os.getpid()} " in path.read_text()


def test_missing_lock_file_is_not_held(tmp_path):
    assert not is_held(tmp_path / "lock")


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_link_or_pipe_as_lock_file_is_refused(tmp_path, kind):
    path, target = tmp_path / "lock", tmp_path / "precious"
    target.write_text("unchanged")
    if kind == "link":
        path.symlink_to(target)
    else:
        os.mkfifo(path)
    assert not is_held(path), "a link or a pipe must not count as held"
    with pytest.raises(OSError, match=str(path)), hold_lock(path, 0.0, refuse):
        pass
    assert target.read_text() == "unchanged"
