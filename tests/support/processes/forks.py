"""Processes of their own that need not import again what takes longer to import than to run."""

import atexit
import multiprocessing
import os
import runpy
import signal
import sys
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
"""What is forked is as if it had imported these itself: all but the last only define things."""


class _Process(ForkServerProcess):
    def run(self) -> None:
        child_servers.begin()  # while it has one thread
        super().run()


forks = multiprocessing.get_context("forkserver")
forks.Process = _Process  # type: ignore[misc, assignment]
forks.set_forkserver_preload(PRELOADED)
AT_HOME = dict(os.environ)
"""What it starts with, whichever test is the first to need it: what it loads may write caches."""


class Forked:
    """A running process in a session or group of its own, with as much of `subprocess.Popen` and of
    `psutil.Process` as tests use.

    `work` is called in it, in `folder` if one is given, with `variables` as its whole environment if they
    are. What it says can be read in `stdout` and `stderr`, unless it goes to the file `output`.
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
        prepared, said = forks.Pipe(duplex=False)
        ours, theirs = [], []
        if output is None:
            for _ in range(2):
                reader, writer = forks.Pipe(duplex=False)
                ours.append(os.fdopen(os.dup(reader.fileno()), encoding="utf-8"))
                reader.close()
                theirs.append(writer)
            self.stdout, self.stderr = ours
        environment = dict(os.environ if variables is None else variables)
        begin = _Begin(folder or Path.cwd(), environment, output, session, theirs, said)
        with patch.dict(os.environ, AT_HOME, clear=True):
            ensure_running()
        self._process = forks.Process(target=begin.run, args=(work, arguments))
        self._process.start()
        for each in (*theirs, said):
            each.close()
        prepared.poll(None)  # it has the group that it is killed by
        prepared.close()
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """As `subprocess` has it: minus the signal that ended it."""
        return self._process.exitcode

    @returncode.setter
    def returncode(self, code: int | None) -> None:
        """psutil sets what it was told."""

    def poll(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.exitcode

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.poll() is None

    def wait(self, timeout: float | None = None) -> int:
        """How it ended. Raises psutil.TimeoutExpired."""
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise psutil.TimeoutExpired(timeout, self.pid)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it says until all are gone that could say more."""
        for stream in (self.stdout, self.stderr):
            os.set_blocking(stream.fileno(), True)
        with ThreadPoolExecutor(2) as pool:
            out, err = pool.map(lambda stream: stream.read(), (self.stdout, self.stderr), timeout=timeout)
        self.wait(timeout)
        self._close()
        return out, err

    def children(self, *, recursive: bool = False) -> list[psutil.Process]:
        """Processes that it has started."""
        return psutil.Process(self.pid).children(recursive=recursive)

    def send_signal(self, number: int) -> None:
        """To it alone."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Kill its group, if it runs, and forget it."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.join()
        self._close()

    def _close(self) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()


@dataclass(frozen=True)
class _Begin:
    """What a process is before it does its work."""

    folder: Path
    variables: Mapping[str, str]
    output: Path | None
    session: bool
    streams: Sequence[Connection]
    said: Connection

    def run(self, work: Callable[..., object], arguments: Sequence[Any]) -> None:
        """As `subprocess.Popen` would start it; what `work` returns is the exit code."""
        if self.session:
            os.setsid()
        else:
            os.setpgid(0, 0)
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.variables)
        files = self.streams or [self.output.open("ab")] * 2
        for number, file in enumerate(files, start=1):
            os.dup2(file.fileno(), number)
        for file in (*files, self.said):
            file.close()
        try:
            sys.exit(work(*arguments))
        finally:  # which what multiprocessing starts leaves out
            atexit._run_exitfuncs()


def module(name: str, *arguments: object, **more: Any) -> Forked:
    """`python -m name arguments`, by a fork."""
    return Forked(_module, name, [str(each) for each in arguments], **more)


def _module(name: str, arguments: Sequence[str]) -> None:
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
