"""Run the `haltsweep` command in a process, and compare its output and files."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.cli import main
from orchestrator.cli.locations import NO_TRACKING, TRACKING_VARIABLE
from tests.support.numerics.blank_figures import draw_blank_figures
from tests.support.processes.forks import Forked
from tests.support.processes.process_lookup import poll_condition

COMMAND = Path(sys.executable).with_name("haltsweep")
PATIENCE_S = 500.0
"""Timeout of every wait: generous, for machines under load."""
OUTSIDE_VARIABLES = (
    "HALTSWEEP_",
    "MLFLOW_",
    "RAY_",
    "FORCE_COLOR",
    "NO_COLOR",
    "TTY_",
    "COLUMNS",
    "LINES",
    "TERM",
)
"""Prefixes of environment variables that commands of tests must not inherit."""

TINY = """\
name: tiny
question: Does the gate matter?

baseline:
  task: {name: listops, trees: 300, depth_max: 2, arguments_max: 3, train_length_max: 20,
         near_iid_examples: 20, valid_examples: 20, test_examples: 20, length_ranges: [[20, 40]]}
  model: {name: universal, width: 16, heads: 2, max_layers: 2}
  train: {steps: 4, batch_size: 8, lr: 1.0e-3, ponder_weight: 0.01, report_every: 2}
arms:
  minus-gate: {why: plain feed-forward block, set: {model.gate: false}}
search:
  also: {train.lr: {float: [1.0e-3, 6.0e-3], log: true}}
  sampler: random
  trials_per_arm: 2
  objectives: [{metric: valid/accuracy, goal: max}]
  seed: 0
confirm: {best: 1, seeds: [101, 102], splits: [near-iid]}
resources: {cpus: 1}

profiles:
  short:
    name: tiny
    search: null
    baseline.train.steps: 2
    confirm.seeds: [5, 6]
"""
"""Two arms, eight trials, a second of work."""


@dataclass(frozen=True)
class Answer:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Shell:
    """Run commands in `folder`, with `home` as home folder."""

    folder: Path
    home: Path
    tracked: bool = False
    """Whether launches write MLflow, which takes longer to import than a small sweep takes to run."""
    draws_figures: bool = False
    """Whether reports contain figures, which take longer to draw than a small sweep takes to run."""

    @classmethod
    def at(
        cls, root: Path, spec: str = TINY, *, tracked: bool = False, draws_figures: bool = False
    ) -> "Shell":
        """Create a working folder whose name needs quoting, with `spec` in tiny.yaml."""
        shell = cls(root / """it's "work" in 100% ä""", root / "home", tracked, draws_figures)
        shell.folder.mkdir()
        shell.home.mkdir()
        (shell.folder / "tiny.yaml").write_text(spec, encoding="utf-8")
        return shell

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the tests, without variables that change what haltsweep does."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(OUTSIDE_VARIABLES)
        }
        fixed = {"HOME": str(self.home), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return inherited | fixed | ({} if self.tracked else {TRACKING_VARIABLE: NO_TRACKING})

    def run(self, *arguments: str, **variables: str) -> Answer:
        """Run a command to its end, in a fork that has already imported the dependencies."""
        with self.started(*arguments, **variables) as process:
            return answer(process)

    def run_fresh(self, *arguments: str, **variables: str) -> Answer:
        """Run a command as a terminal does, in a process that has imported nothing yet."""
        with self.started_fresh(*arguments, **variables) as process:
            return answer(process)

    @contextmanager
    def started_fresh(self, *arguments: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
        """Start a command in a process that has imported nothing yet; kill it at the end of the block."""
        with subprocess.Popen(
            [COMMAND, *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    @contextmanager
    def started(self, *arguments: str, **variables: str) -> Iterator[Forked]:
        """Start a command in a new process group, as a terminal does; kill it at the end of the block."""
        environment = {**self.environment, **variables}
        work = partial(_command, draws_figures=self.draws_figures)
        process = Forked(work, arguments, folder=self.folder, variables=environment)
        try:
            yield process
        finally:
            process.end()


def _command(arguments: Sequence[str], *, draws_figures: bool) -> None:
    """Run the command line in a fork as a shell would start it."""
    if not draws_figures:
        draw_blank_figures()
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [str(COMMAND), *arguments]
    main.run()


def commands_by_name(group: Any, prefix: str = "") -> dict[str, Any]:
    """Return the commands of a group and of its subgroups, by full name, e.g. `data build`."""
    commands: dict[str, Any] = {}
    for name, command in group.commands.items():
        is_group = hasattr(command, "commands")
        commands |= (
            commands_by_name(command, f"{prefix}{name} ") if is_group else {f"{prefix}{name}": command}
        )
    return commands


def answer(process: "Forked | subprocess.Popen[str]") -> Answer:
    """Wait for the process to end and return its exit code and output."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return Answer(process.returncode, out, err)


def interrupt(process: Forked) -> None:
    """Press Ctrl-C: send SIGINT to the whole process group, as a terminal does."""
    os.killpg(process.pid, signal.SIGINT)


def wait_for(condition: Callable[[], bool], process: "Forked | subprocess.Popen[str]") -> None:
    """Wait until `condition` holds; fail if `process` ends before that or after a timeout."""
    deadline = time.monotonic() + PATIENCE_S
    while not poll_condition(condition, 0.05):
        assert process.poll() is None, f"ended too early: {process.communicate()}"
        assert time.monotonic() < deadline, "waited too long"


def tree(folder: Path) -> Mapping[str, str]:
    """Return the digest of every file below a folder, and an empty string for each subfolder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
    }
