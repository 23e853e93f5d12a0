"""Run a single-threaded server process that has imported the user's module and forks children.

Each child is a fork of the server, so that a child starts in tens of milliseconds with freshly imported
modules. If the import starts threads or initialises CUDA, or the platform cannot fork safely, each child is a
fresh interpreter instead. When a child ends, the server kills all of its descendants.
"""

import ctypes
import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import recv_handle
from pathlib import Path

import psutil

from orchestrator.isolation.child import die_with_parent, run_child
from orchestrator.isolation.child_log import ChildLog
from orchestrator.isolation.memory_kills import MemoryKills
from orchestrator.isolation.messages import KILL_CHILD, ChildEnded, ChildOrder, ServerSettings
from orchestrator.isolation.working_folder import LaunchFiles
from trainables.custom.extensions import import_named
from trainables.custom.fork_safety import num_unforkable_threads
from trainables.custom.source_files import source_contains

CHECK_S = 0.5
"""Seconds between two checks of a child's log size and of memory."""
POLL_S = 0.02
"""Seconds between two checks for the end of a process on platforms that cannot wait for it."""
KILL_S, KILL_POLL_S = 10.0, 0.002
"""Seconds to wait for killed processes, and seconds between two checks."""
LINUX = sys.platform == "linux"
PR_SET_CHILD_SUBREAPER = 36
CUDA_DEVICE = Path("/dev/nvidia-uvm")
"""Device file that a process keeps open after it has initialised CUDA."""
MEMORY_SIGNALS = frozenset({-signal.SIGKILL, -signal.SIGTERM})
"""Signals sent by the system, and by daemons that monitor memory, when memory runs out."""


def serve(control: Connection) -> None:
    """Read the settings, import the module, and run children until the other end is closed."""
    with suppress(OSError):  # the process already leads a group
        os.setsid()  # Ctrl-C must reach only the owner, which makes running trials write checkpoints
    if LINUX:
        _adopt_orphans()
        _fork_from_reaper(control)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    die_with_parent(signal.SIGTERM)
    try:
        settings: ServerSettings = control.recv()
        os.environ.clear()
        os.environ.update(settings.environment)
        sys.path[:] = settings.sys_path
        importlib.invalidate_caches()
        sys.argv = [settings.module]
        with suppress(OSError):
            os.chdir(settings.launch_folder)
        for name in settings.preloaded:
            importlib.import_module(name)
        _Server(control, settings, forks=prepare(settings.module)).run()
    except (EOFError, OSError, KeyboardInterrupt):
        pass  # the owner has closed the connection, or has ended and this process gets SIGTERM
    finally:
        end_descendants()


def prepare(module: str) -> bool:
    """Import modules that children need; return whether children can be forks of this process.

    An error of the import of the user's module `module` is raised in the children, not here.
    """
    num_threads = num_unforkable_threads()
    with suppress(Exception):
        import_named(module, "a trainable's module", with_siblings=True)
    if not LINUX or num_unforkable_threads() > num_threads:
        return False
    if "torch" in sys.modules or source_contains(module, "torch"):
        importlib.import_module("torch")
        # The first optimizer of a process imports torch._dynamo, which takes longer than a short trial.
        importlib.import_module("torch._dynamo")
    if _uses_cuda():
        return False
    gc.collect()
    gc.freeze()  # the collector would write to memory pages that children share
    return True


def _uses_cuda() -> bool:
    return any(file.resolve() == CUDA_DEVICE for file in Path("/proc/self/fd").iterdir())


class _Server:
    def __init__(self, control: Connection, settings: ServerSettings, *, forks: bool) -> None:
        self._control = control
        self._forks = forks
        self._files = LaunchFiles.of(settings.launch_folder)

    def run(self) -> None:
        while (order := self._control.recv()) is not None:
            if not isinstance(order, ChildOrder):
                continue  # a request to kill a child that had already ended
            connection = recv_handle(self._control)
            log = ChildLog(order.log)
            try:
                start = self._fork if self._forks else self._spawn
                child = start(order, connection, log)
                os.close(connection)
                child_end = self._wait_for(child, log)
            finally:
                # SIGTERM arrives when the owner ends, and must not interrupt the cleanup.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                end_descendants()
                log.close()
                if order.scratch is not None:
                    shutil.rmtree(order.scratch, ignore_errors=True)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            self._control.send(child_end)

    def _fork(self, order: ChildOrder, connection: int, log: ChildLog) -> int:
        if child := os.fork():
            return child
        try:
            self._control.close()
            run_child(order, connection, log.descriptor, self._files)
        finally:
            os._exit(1)

    def _spawn(self, order: ChildOrder, connection: int, log: ChildLog) -> int:
        parent_end, child_end = Pipe()
        call = f"from {__name__} import run_spawned; run_spawned({child_end.fileno()})"
        output = subprocess.DEVNULL if log.descriptor is None else log.descriptor
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module  # nosec B603
            [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {call}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[child_end.fileno(), connection],
        )
        child_end.close()
        with suppress(OSError), parent_end:
            parent_end.send((sys.argv, order, connection, self._files))
        return process.pid

    def _wait_for(self, child: int, log: ChildLog) -> ChildEnded:
        """Wait until the child has ended; return its exit code and cause."""
        kills = MemoryKills()
        ending = os.pidfd_open(child) if hasattr(os, "pidfd_open") else None
        sources: list[Connection | int] = [self._control, *([] if ending is None else [ending])]
        try:
            while True:
                ready = wait(sources, POLL_S if ending is None else CHECK_S)
                if self._control in ready and self._control.recv() != KILL_CHILD:
                    raise EOFError("the owner closes the server")
                if self._control in ready:
                    kill_descendants()
                ended_pid, status = os.waitpid(child, os.WNOHANG)
                if ended_pid:
                    with suppress(OSError):
                        os.killpg(child, signal.SIGKILL)  # for platforms without adoption of orphans
                    code = os.waitstatus_to_exitcode(status)
                    return ChildEnded(code, code in MEMORY_SIGNALS and kills.was_oom_kill())
                kills.take_reading()
                log.drop_middle()
        finally:
            if ending is not None:
                os.close(ending)


def run_spawned(descriptor: int) -> None:
    """Run a child in a fresh interpreter; the server sends the order on the connection."""
    with Connection(descriptor) as described:
        sys.argv, order, connection, files = described.recv()
    run_child(order, connection, None, files)


def _adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be killed when the child ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _forward_sigterm(server: int) -> None:
    with suppress(ProcessLookupError):  # the server has just ended
        os.kill(server, signal.SIGTERM)


def _fork_from_reaper(control: Connection) -> None:
    """Fork and return in the child, which is the server; the parent kills orphans after the server's end."""
    server = os.fork()
    if not server:
        _adopt_orphans()
        return
    try:
        control.close()
        signal.signal(signal.SIGTERM, lambda *_: _forward_sigterm(server))
        die_with_parent(signal.SIGTERM)
        os.waitpid(server, 0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_descendants()
    finally:
        os._exit(0)


def kill_descendants() -> None:
    """Kill all descendants of this process."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def end_descendants() -> None:
    """Kill all descendants of this process, and wait until they have ended."""
    until = time.monotonic() + KILL_S
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return  # no child is left
        kill_descendants()
        time.sleep(KILL_POLL_S)
