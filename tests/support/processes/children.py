"""Functions that tests run in a child server; each takes a payload, a connection and the launch files."""

import atexit
import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from orchestrator.isolation.child_server import ChildServer, settings_here
from orchestrator.isolation.messages import ChildOrder
from orchestrator.isolation.working_folder import LaunchFiles, Mode, SharedFileWritten, WorkingFolder

MODULE = __name__
"""Greater than every descriptor of a test."""


def order(function: Any, payload: Any = None, **options: Any) -> ChildOrder:
    """Return the order to run a function of this module."""
    return ChildOrder(f"{MODULE}:{function.__name__}", payload, **options)


def echo(payload: Any, connection: Connection, files: LaunchFiles) -> None:
    """Send back the payload, then every received message, until a message is None."""
    message = payload
    while message is not None:
        connection.send((os.getpid(), os.getppid(), message))
        message = connection.recv()


def end(payload: str, connection: Connection, files: LaunchFiles) -> None:
    """Send a message, print, and end in the way that `payload` names."""
    connection.send("last words")
    print("printed", flush=True)
    match payload:
        case "return":
            return
        case "raise":
            raise RuntimeError("by design")
        case "exit":
            sys.exit(5)
        case "os-exit":
            os._exit(3)
        case "segfault":
            faulthandler.disable()
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1e6)
        case "exit-on-signal":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1e6)
        case "fill-memory":
            blocks = [os.urandom(1 << 20) for _ in range(4096)]
            print(len(blocks))
        case "thread":
            threading.Thread(target=time.sleep, args=(1e6,)).start()
        case "ignore-signals":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1e6)


def start_processes(payload: Path, connection: Connection, files: LaunchFiles) -> None:
    """Start processes that try to outlive this one, write their ids to `payload`, and wait for a message."""
    subprocess.Popen(_sleeper(payload))
    subprocess.Popen(_sleeper(payload), start_new_session=True)
    if os.fork() == 0:  # a daemon: its parent ends, it has a session of its own
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            subprocess.Popen(_sleeper(payload), start_new_session=True)
            _write_pid(payload)
            time.sleep(1e6)
        os._exit(0)
    while not payload.exists() or len(payload.read_text().splitlines()) < STARTED:
        time.sleep(0.005)
    _write_pid(payload)
    print("printed")
    connection.send(os.getppid())
    with suppress(EOFError):
        connection.recv()


STARTED = 4
"""Number of processes that `start_processes` starts."""


def _sleeper(pid_file: Path) -> list[str]:
    return ["/bin/sh", "-c", f"echo $$ >> '{pid_file}'; exec sleep 1000000"]


def _write_pid(pid_file: Path) -> None:
    with pid_file.open("a") as file:
        file.write(f"{os.getpid()}\n")


def start_server_and_child(pid_file: Path, launch_folder: Path) -> None:
    """Start a server and a child with processes, then wait to be killed."""
    server = ChildServer(settings_here(MODULE, launch_folder, ()))
    log, scratch = launch_folder / "sweep" / "logs" / "trial" / "attempt-1.log", launch_folder / "scratch"
    log.parents[2].mkdir()
    scratch.mkdir()
    server.start(order(start_processes, pid_file, log=log, scratch=scratch))
    parent = server.receive()
    with pid_file.open("a") as file:
        file.write(f"{parent}\nready\n")
    time.sleep(1e6)


def print_everywhere(payload: str, connection: Connection, files: LaunchFiles) -> None:
    """Print through Python, a descriptor, a program and the C library; then run the code in `payload`."""
    print("python")
    os.write(2, b"descriptor\n")
    subprocess.run(["echo", "a program"], check=True)
    ctypes.CDLL(None).puts(b"libc")
    ctypes.CDLL(None).fflush(None)
    exec(payload, dict(globals()))


def use_folder(payload: str, connection: Connection, files: LaunchFiles) -> None:
    """Send whether `FOLDER` of the module `payload` exists, and the name of a new temporary folder."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(connection.send, "handled")
    connection.send((Path(sys.modules[payload].FOLDER.name).is_dir(), folder.name))
    _open_folders.append(folder)


_open_folders: list[Any] = []


def send_fork_state(payload: str, connection: Connection, files: LaunchFiles) -> None:
    """Send whether the module `payload` was imported before this call, and the number of threads."""
    connection.send((payload in sys.modules, threading.active_count()))


@dataclass(frozen=True)
class Work:
    """Code that a trial runs in its working folder."""

    code: str
    """Python code; it may set `result`."""
    scratch: Path
    mode: Mode = "private"
    exempt: tuple[Path, ...] = ()
    waits: bool = False
    """Whether to send the result first and wait for a message before the end."""


def work(payload: Work, connection: Connection, files: LaunchFiles) -> None:
    """Run code in a working folder; send its `result`, or the SharedFileWritten error that ended it."""
    folder = WorkingFolder(files, payload.mode, payload.scratch, payload.exempt)
    folder.enter()
    names: dict[str, Any] = {"result": None}
    try:
        exec(payload.code, names)
        folder.check_writes()
    except SharedFileWritten as error:
        connection.send(error)
        return
    connection.send(names["result"])
    if payload.waits:
        connection.recv()
