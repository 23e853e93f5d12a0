"""Processes forked from a server that has imported the slow dependencies once."""

import atexit
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

from tests.support.processes import child_servers

PRELOADED = [
    "pytest",
    "optuna",
    "torch",
    "torch._dynamo",
    "scipy.optimize",
    "scipy.stats",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
    "jinja2",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "pandas",
    "rich.live",
    "rich.table",
    "orchestrator.conductor.arm_search",
    "orchestrator.plan.planner",
    "orchestrator.plan.display.render",
    "orchestrator.report.writers.write",
    "orchestrator.cli.main",
    "trainables.models.universal",
    "trainables.tasks.listops",
    "trainables.training",
    "tests.faults.kills.chaos",
    "tests.support.processes.warm",
]
"""Modules that the fork server imports. All but the last only define things, as a fresh process would."""


class _Process(ForkServerProcess):
    def run(self) -> None:
        child_servers.begin()  # while it has one thread
        super().run()


forks = multiprocessing.get_context("forkserver")
forks.Process = _Process  # type: ignore[misc, assignment]
forks.set_forkserver_preload(PRELOADED)
INITIAL_ENVIRONMENT = dict(os.environ)
"""Environment of the fork server: the same for whichever test starts it, since imports may write caches."""


class Forked:
    """A running process in a new session or process group, with methods of Popen and psutil that tests use.

    The process calls `work` in `folder`, if given, with `variables` as its whole environment, if given.
    Its output is readable in `stdout` and `stderr`, unless it goes to the file `output`.
    """

    def __init__(
        self,
        work: Callable[..., object],
        *arguments: Any,
        folder: Path | None = None,
        variables: Mapping[str, str] | None = None,
        output: Path | None = None,
        session: bool = False,
    ) -> None:
        self.stdout, self.stderr = None, None
        ready_reader, ready_writer = forks.Pipe(duplex=False)
        own_streams, child_streams = [], []
        if output is None:
            for _ in range(2):
                reader, writer = forks.Pipe(duplex=False)
                own_streams.append(os.fdopen(os.dup(reader.fileno()), encoding="utf-8"))
                reader.close()
                child_streams.append(writer)
            self.stdout, self.stderr = own_streams
        environment = dict(os.environ if variables is None else variables)
        start = _ForkStart(folder or Path.cwd(), environment, output, session, child_streams, ready_writer)
        with patch.dict(os.environ, INITIAL_ENVIRONMENT, clear=True):
            ensure_running()
        self._process = forks.Process(target=start.run, args=(work, arguments))
        self._process.start()
        for stream in (*child_streams, ready_writer):
            stream.close()
        ready_reader.poll(None)  # the process has now the group by which tests kill it
        ready_reader.close()
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, or minus the signal that ended the process, as in `subprocess`."""
        return self._process.exitcode

    @returncode.setter
    def returncode(self, code: int | None) -> None:
        """Ignore the assignment that psutil makes."""

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self._process.exitcode

    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self.poll() is None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process and return its exit code. Raises psutil.TimeoutExpired."""
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise psutil.TimeoutExpired(timeout, self.pid)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return everything that the process and its children write until they end."""
        for stream in (self.stdout, self.stderr):
            os.set_blocking(stream.fileno(), True)
        with ThreadPoolExecutor(2) as pool:
            out, err = pool.map(lambda stream: stream.read(), (self.stdout, self.stderr), timeout=timeout)
        self.wait(timeout)
        self._close()
        return out, err

    def children(self, *, recursive: bool = False) -> list[psutil.Process]:
        """Return the processes that this process has started."""
        return psutil.Process(self.pid).children(recursive=recursive)

    def send_signal(self, number: int) -> None:
        """Send a signal to this process, not to its group."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Kill the process group if it runs, and close the streams."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.join()
        self._close()

    def _close(self) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()


@dataclass(frozen=True)
class _ForkStart:
    """Settings of a forked process before it does its work."""

    folder: Path
    variables: Mapping[str, str]
    output: Path | None
    session: bool
    streams: Sequence[Connection]
    ready_writer: Connection

    def run(self, work: Callable[..., object], arguments: Sequence[Any]) -> None:
        """Prepare the process as `subprocess.Popen` does, then exit with the result of `work`."""
        if self.session:
            os.setsid()
        else:
            os.setpgid(0, 0)
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.variables)
        tempfile.tempdir = None  # an import of the server may have read TMPDIR
        files = self.streams or [self.output.open("ab")] * 2
        for number, file in enumerate(files, start=1):
            os.dup2(file.fileno(), number)
        for file in (*files, self.ready_writer):
            file.close()
        try:
            sys.exit(work(*arguments))
        finally:  # multiprocessing skips exit functions
            atexit._run_exitfuncs()


def run_module(name: str, *arguments: object, **options: Any) -> Forked:
    """Run `python -m name arguments` in a fork."""
    return Forked(_module, name, [str(argument) for argument in arguments], **options)


def _module(name: str, arguments: Sequence[str]) -> None:
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
