"""Start a server process, run children in it one after another, and end it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any

from orchestrator.isolation.messages import KILL_CHILD, ChildEnded, ChildOrder, ServerSettings

MODULE = "orchestrator.isolation.server"
END_S = 15.0
"""Maximum seconds for a server to end its child and itself."""


def settings_here(
    module: str,
    launch_folder: Path,
    preloaded: Sequence[str],
    *,
    threads: int = 1,
    hides_gpus: bool = False,
) -> ServerSettings:
    """Return settings for a server with the module search path of this process.

    Args:
        module: The user's module, which the server imports before it starts children.
        launch_folder: Working directory of the server.
        preloaded: Modules of haltsweep that children need.
        threads: Number of threads that libraries may start.
        hides_gpus: Whether children see no GPU.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = _with_hash_seed() | dict.fromkeys(names, str(threads))
    # Otherwise torch.cuda.is_available() would initialise CUDA, after which the server could not fork.
    environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    if environment.get("MLFLOW_TRACKING_URI") == "none":  # MLflow would use a folder named `none`
        del environment["MLFLOW_TRACKING_URI"]
    if hides_gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    current_folder = str(Path.cwd())
    places = tuple(folder or current_folder for folder in sys.path)
    return ServerSettings(module, tuple(preloaded), places, launch_folder, environment)


def start_interpreter(connection: Connection) -> "subprocess.Popen[bytes] | None":
    """Start a fresh interpreter that runs a server on the other end of `connection`."""
    call = f"from {MODULE} import Connection, serve; serve(Connection({connection.fileno()}))"
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module  # nosec B603
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {call}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[connection.fileno()],
        env=_with_hash_seed(),
    )


def _with_hash_seed() -> dict[str, str]:
    """Return the environment with a fixed hash seed, so that sets of strings have a fixed order."""
    return {"PYTHONHASHSEED": "0", **os.environ}


class ChildServer:
    """Owner of a server that runs one child at a time.

    Call `start`, then `receive` and `send` in turn until the child has ended.
    """

    start_process: Callable[[Connection], "subprocess.Popen[bytes] | None"] = staticmethod(start_interpreter)

    def __init__(self, settings: ServerSettings) -> None:
        """Start the server, which imports its module in the background."""
        self._settings = settings
        self._control: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._child: Connection | None = None
        self._is_running = False
        self._connect()

    def _connect(self) -> None:
        self._control, child_end = Pipe()
        with child_end:
            self._process = self.start_process(child_end)
        with suppress(OSError):  # the next read detects a dead server
            self._control.send(self._settings)

    def start(self, order: ChildOrder) -> None:
        """Wait for the previous child to end, then start a child."""
        self.await_end()
        if self._control is None:
            self._connect()
        assert self._control is not None, "a server was started"
        self._child, child_end = Pipe()
        self._is_running = True
        with child_end, suppress(OSError):
            self._control.send(order)
            send_handle(self._control, child_end.fileno(), None)

    def receive(self, timeout_s: float | None = None) -> Any:
        """Return the child's next message, `ChildEnded` after the last one, or None after the timeout."""
        until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while self._control is not None:
            wait_s = None if timeout_s is None else max(0.0, until - time.monotonic())
            ready = wait(list(filter(None, (self._child, self._control))), wait_s)
            if self._child is not None and self._child in ready:
                try:
                    return self._child.recv()
                except (EOFError, OSError):  # the server sends the exit code
                    self._close_child()
            elif self._control in ready:
                if (ending := self._read_control()) is not None:
                    return ending
            elif time.monotonic() >= until:
                return None
        return ChildEnded(-signal.SIGKILL)

    def send(self, message: Any) -> None:
        """Send a message to the child. If the child has ended, `receive` returns its exit code."""
        if self._child is not None:
            with suppress(OSError):
                self._child.send(message)

    def kill(self) -> None:
        """End the child and all of its descendants."""
        if self._is_running and self._control is not None:
            with suppress(OSError):
                self._control.send(KILL_CHILD)
            self.await_end()

    def await_end(self) -> None:
        """Wait until the child has ended, and discard its remaining messages."""
        self._close_child()
        until = time.monotonic() + END_S
        while self._is_running and self._control is not None:
            if self._control.poll(max(0.0, until - time.monotonic())):
                self._read_control()
            else:
                self.close()

    def close(self) -> None:
        """End the child, all of its descendants and the server."""
        self._close_child()
        control, self._control = self._control, None
        process, self._process = self._process, None
        self._is_running = False
        if control is not None:
            with suppress(OSError):
                control.send(None)
            control.close()
        if process is not None:
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _read_control(self) -> ChildEnded | None:
        assert self._control is not None, "there is something to read"
        try:
            message = self._control.recv()
        except (EOFError, OSError):
            self.close()
            message = ChildEnded(-signal.SIGKILL)
        self._is_running = False
        self._close_child()
        return message if isinstance(message, ChildEnded) else None

    def _close_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()
