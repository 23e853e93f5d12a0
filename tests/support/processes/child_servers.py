"""Servers of child processes that need not import again what takes longer to import than to run.

A template is a process that has imported everything, has one thread, and forks a server when asked to. Forked
commands have one of their own (`begin`); pytest's processes start one when they first need it.
"""

import multiprocessing
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path

from orchestrator.isolation.child import die_with_parent
from orchestrator.isolation.child_server import ChildServer
from orchestrator.isolation.server import serve

_templates: dict[int, Connection] = {}
"""Connection to the template of a process, by the process that owns it."""


def install() -> None:
    """From now on servers of this process and of its forks are forks of a template."""
    ChildServer.start_process = staticmethod(_start)


def begin() -> None:
    """Fork the template of this process, which has one thread still."""
    ours, theirs = Pipe()
    if os.fork():
        theirs.close()
        _templates[os.getpid()] = ours
        return
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):  # it ends with the command, which others may signal
            signal.signal(number, signal.SIG_IGN)
        _run_template(theirs)
    finally:
        os._exit(0)


@dataclass(frozen=True)
class _Server:
    """As much of `subprocess.Popen` as owners of a server use."""

    pid: int

    def wait(self, timeout: float | None = None) -> None:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        try:
            ending = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if not wait([ending], timeout):
                raise subprocess.TimeoutExpired("server", timeout or 0.0)
        finally:
            os.close(ending)


def _start(connection: Connection) -> _Server:
    if os.getpid() not in _templates:
        ours, theirs = Pipe()
        ForkServerProcess(target=_run_template, args=(theirs,), daemon=True).start()
        theirs.close()
        _templates[os.getpid()] = ours
    template = _templates[os.getpid()]
    send_handle(template, connection.fileno(), None)
    return _Server(template.recv())


def _run_template(connection: Connection) -> None:
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _let_go_of_files(connection.fileno())
    multiprocessing.set_start_method(None, force=True)  # set by what started this process
    tracker = resource_tracker._resource_tracker
    tracker._fd = tracker._pid = None  # that of another process
    with suppress(EOFError, OSError):
        while True:
            descriptor = recv_handle(connection)
            if (server := os.fork()) == 0:
                for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                connection.close()
                try:
                    serve(Connection(descriptor))
                finally:
                    os._exit(0)
            os.close(descriptor)
            connection.send(server)


def _let_go_of_files(kept: int) -> None:
    """Pipes of a command must end with the command."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        if int(descriptor.name) > 2 and int(descriptor.name) != kept:
            with suppress(OSError):
                os.close(int(descriptor.name))
