"""Child servers that are forked from a process that has already imported the slow dependencies.

A template is a process that has imported everything, has one thread, and forks a server on request. A forked
command starts a template in `begin`; a process of pytest starts one when it first needs a server.
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
"""Connection to the template of a process, by process id."""


def install() -> None:
    """Make every server of this process and of its forks a fork of a template."""
    ChildServer.start_process = staticmethod(_start)


def begin() -> None:
    """Fork the template of this process, which still has one thread."""
    own_end, template_end = Pipe()
    if os.fork():
        template_end.close()
        _templates[os.getpid()] = own_end
        return
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):  # it ends with the command, which tests may signal
            signal.signal(number, signal.SIG_IGN)
        _run_template(template_end)
    finally:
        os._exit(0)


@dataclass(frozen=True)
class _Server:
    """The part of `subprocess.Popen` that owners of a server use."""

    pid: int

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the process to end. Raises subprocess.TimeoutExpired."""
        try:
            ending = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if not wait([ending], timeout):
                raise subprocess.TimeoutExpired("server", timeout or 0.0)
        finally:
            os.close(ending)


def connect_to_template() -> Connection:
    """Return the connection to the template process, which is started if necessary.

    A forked child that plans uses the template process of its waiting parent.
    """
    for process_id in (os.getpid(), os.getppid()):
        if process_id in _templates:
            return _templates[process_id]
    own_end, template_end = Pipe()
    ForkServerProcess(target=_run_template, args=(template_end,), daemon=True).start()
    template_end.close()
    return _templates.setdefault(os.getpid(), own_end)


def _start(connection: Connection) -> _Server:
    template = connect_to_template()
    send_handle(template, connection.fileno(), None)
    return _Server(template.recv())


def _run_template(connection: Connection) -> None:
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _close_inherited_files(connection.fileno())
    multiprocessing.set_start_method(None, force=True)  # the parent process has set one
    tracker = resource_tracker._resource_tracker
    tracker._fd = tracker._pid = None  # these belong to another process
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


def _close_inherited_files(connection: int) -> None:
    """Close inherited descriptors, because pipes of a command must close when the command ends."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        if int(descriptor.name) > 2 and int(descriptor.name) != connection:
            with suppress(OSError):
                os.close(int(descriptor.name))
