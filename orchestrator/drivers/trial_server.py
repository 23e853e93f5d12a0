"""The server process of a slot: clean, with one thread, and with the trainable imported.

Each trial is a fork of the server, so that modules are as after their import and a trial starts in tens of
milliseconds. Where the import of the trainable started threads or initialised CUDA, or the platform cannot
fork safely, each trial gets a fresh interpreter instead. When a trial ends, everything that it started is
killed.
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
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle
from types import FrameType

import psutil

from orchestrator.drivers.jobs import WorkerJob
from orchestrator.drivers.output import TrialLog
from orchestrator.drivers.trial_messages import ChildEnded, KillChild, ServerReady, ServerSettings
from orchestrator.drivers.working_folder import LaunchFiles
from trainables.extensions import imported
from trainables.source_files import mentions

LOOK_S = 0.5
"""Between two looks whether the log of the trial has grown too large."""
POLL_S = 0.02
"""The same where the end of a process cannot be waited for together with messages."""
KILL_S, PAUSE_S = 10.0, 0.002
"""How long killed processes are waited for, and between two looks."""
LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CUDA_DEVICE = "/dev/nvidia-uvm"
"""Held open by a process that has initialised CUDA."""
TORCH = "torch"


def main(descriptor: int) -> None:
    """Serve the trials that are asked for on the connection with this descriptor."""
    serve(Connection(descriptor))


def serve(control: Connection) -> None:
    """Read the settings, import the trainable, and run trials until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminated)
    die_with_parent(signal.SIGTERM)
    _adopt_orphans()
    try:
        settings: ServerSettings = control.recv()
        os.environ.update(settings.environment)
        sys.path[:] = settings.sys_path
        with suppress(OSError):
            os.chdir(settings.launch_folder)
        sys.argv = [settings.workload.partition(":")[0]]
        reason = prepare(settings.workload)
        server = _Server(control, settings, forks=not reason)
        control.send(ServerReady(not reason, reason))
        server.run()
    except (EOFError, OSError):
        pass  # nobody is connected any more
    finally:
        end_descendants()


def prepare(workload: str) -> str:
    """Import what trials need. Returns why they cannot be forks of this process; empty if they can."""
    import numpy  # noqa: F401 - the threads of its linear algebra survive a fork

    threads = _threads()
    module = workload.partition(":")[0]
    with suppress(Exception):  # each trial will say what is wrong
        imported(module, "a trainable's module")
    if started := _threads() - threads:
        return f"importing {module} starts {started} thread{'s' * (started > 1)}"
    if not LINUX:
        return f"processes cannot be forked safely on {sys.platform}"
    if TORCH in sys.modules or mentions(module, TORCH):
        importlib.import_module("torch")
        # The first optimiser of a process imports it, which takes longer than a short trial.
        importlib.import_module("torch._dynamo")
    if _uses_cuda():
        return f"importing {module} initialises CUDA"
    gc.collect()
    gc.freeze()  # objects that no collection visits stay in pages that all trials share
    return ""


def _threads() -> int:
    return psutil.Process().num_threads()


def _uses_cuda() -> bool:
    with suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}") == CUDA_DEVICE:
                    return True
    return False


class _Server:
    def __init__(self, control: Connection, settings: ServerSettings, *, forks: bool) -> None:
        self._control = control
        self._settings = settings
        self._forks = forks
        self._files = LaunchFiles.of(settings.launch_folder)

    def run(self) -> None:
        while (order := self._control.recv()) is not None:
            if not isinstance(order, WorkerJob):
                continue  # the trial that was to be killed has ended meanwhile
            trial = recv_handle(self._control)
            log = TrialLog(order.log)
            try:
                child = self._forked(order, trial, log) if self._forks else self._spawned(order, trial, log)
                os.close(trial)
                exit_code = self._watched(child, log)
            finally:
                end_descendants()
                log.close()
                shutil.rmtree(order.scratch, ignore_errors=True)
            self._control.send(ChildEnded(exit_code))

    def _forked(self, order: WorkerJob, trial: int, log: TrialLog) -> int:
        if child := os.fork():
            return child
        try:
            self._control.close()
            run_child(order, trial, log.descriptor, self._files)
        finally:
            os._exit(1)

    def _spawned(self, order: WorkerJob, trial: int, log: TrialLog) -> int:
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import spawned; spawned()"
        output = subprocess.DEVNULL if log.descriptor is None else log.descriptor
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module  # nosec B603
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=[trial],
        )
        assert process.stdin is not None, "a pipe was asked for"
        import pickle

        with suppress(OSError), process.stdin as stdin:
            pickle.dump((sys.argv, order, trial, self._files), stdin)
        return process.pid

    def _watched(self, child: int, log: TrialLog) -> int:
        """Wait until the child has ended; its exit code."""
        ending = os.pidfd_open(child) if hasattr(os, "pidfd_open") else None
        sources: list[Connection | int] = [self._control, *([] if ending is None else [ending])]
        try:
            while True:
                ready = wait(sources, LOOK_S if ending is not None else POLL_S)
                if self._control in ready and (message := self._control.recv()) is not None:
                    assert isinstance(message, KillChild), "nothing else is said while a trial runs"
                    kill_descendants()
                elif self._control in ready:
                    raise EOFError("the driver is done")
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    with suppress(OSError):
                        os.killpg(child, signal.SIGKILL)  # where orphans are nobody's
                    return os.waitstatus_to_exitcode(status)
                log.bound()
        finally:
            if ending is not None:
                os.close(ending)


def spawned() -> None:
    """In a fresh interpreter: run the trial that the server describes on the standard input."""
    import pickle

    sys.argv, order, trial, files = pickle.load(sys.stdin.buffer)  # noqa: S301 - as above  # nosec B301
    run_child(order, trial, None, files)


def run_child(order: WorkerJob, trial: int, output: int | None, files: LaunchFiles) -> None:
    """In the process of a trial: run it, and end the process."""
    from orchestrator.drivers.trial_child import TrialChild

    die_with_parent(signal.SIGKILL)
    TrialChild(order, trial, output, files).run()


def die_with_parent(number: int) -> None:
    """Have the system send this process the signal when its parent ends; Linux alone can."""
    if not LINUX:
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it ended just before
        os.kill(os.getpid(), number)


def _adopt_orphans() -> None:
    """Processes whose parent ends become children of this one, and are found when the trial ends."""
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants() -> None:
    """Kill every process that this one or its children have started."""
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            each.kill()


def end_descendants() -> None:
    """Kill them, and wait until all are gone."""
    until = time.monotonic() + KILL_S
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return  # there is none
        kill_descendants()
        time.sleep(PAUSE_S)


def _terminated(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the shape of a handler
    raise EOFError("the driver has ended")
