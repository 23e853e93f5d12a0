"""The `haltsweep` command as people run it: a process of its own, what it says, what it leaves behind."""

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
from orchestrator.cli.locations import TRACKING_VARIABLE, UNTRACKED
from tests.support.numerics.blank_figures import draw_none
from tests.support.processes.forks import Forked
from tests.support.processes.process_lookup import looked

COMMAND = Path(sys.executable).with_name("haltsweep")
PATIENCE_S = 500.0
"""For machines that do much else; nothing that works takes so long."""
STEERED_BY = ("HALTSWEEP_", "MLFLOW_", "RAY_", "FORCE_COLOR", "NO_COLOR", "TTY_", "COLUMNS", "LINES", "TERM")
"""Variables of the tester that a test must not depend on."""

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
    """What a command said and returned."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Shell:
    """Runs commands in `folder`, with a home of its own."""

    folder: Path
    home: Path
    tracked: bool = False
    """Whether launches write MLflow, which loads longer than a small sweep takes."""
    drawn: bool = False
    """Whether figures of reports are drawn, which takes longer than a small sweep too."""

    @classmethod
    def at(cls, root: Path, spec: str = TINY, *, tracked: bool = False, drawn: bool = False) -> "Shell":
        """A working folder with a name as people give them, with `spec` in tiny.yaml."""
        shell = cls(root / """it's "work" in 100% ä""", root / "home", tracked, drawn)
        shell.folder.mkdir()
        shell.home.mkdir()
        (shell.folder / "tiny.yaml").write_text(spec, encoding="utf-8")
        return shell

    @property
    def environment(self) -> dict[str, str]:
        """That of the tests, without what steers us."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(STEERED_BY)}
        steered = {"HOME": str(self.home), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return kept | steered | ({} if self.tracked else {TRACKING_VARIABLE: UNTRACKED})

    def run(self, *arguments: str, **variables: str) -> Answer:
        """Run to the end, in a process that has imported already what all commands import."""
        with self.started(*arguments, **variables) as process:
            return answer(process)

    def run_fresh(self, *arguments: str, **variables: str) -> Answer:
        """As `run`, in a process that has imported nothing yet, as from a terminal."""
        with self.started_fresh(*arguments, **variables) as process:
            return answer(process)

    @contextmanager
    def started_fresh(self, *arguments: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
        """As `started`, in a process that has imported nothing yet."""
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
        """A running command, in a process group of its own, as a terminal would; gone at the end."""
        environment = {**self.environment, **variables}
        work = partial(_command, drawn=self.drawn)
        process = Forked(work, arguments, folder=self.folder, variables=environment)
        try:
            yield process
        finally:
            process.end()


def _command(arguments: Sequence[str], *, drawn: bool) -> None:
    """In a process of its own: as a shell would start it."""
    if not drawn:
        draw_none()
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [str(COMMAND), *arguments]
    main.run()


def every_command(group: Any, before: str = "") -> dict[str, Any]:
    """The commands of a group and of the groups in it, by full name, e.g. `data build`."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        inner = hasattr(command, "commands")
        found |= every_command(command, f"{before}{name} ") if inner else {f"{before}{name}": command}
    return found


def answer(process: "Forked | subprocess.Popen[str]") -> Answer:
    """What a command says until its end."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return Answer(process.returncode, out, err)


def interrupt(process: Forked) -> None:
    """Ctrl-C: the terminal tells the whole group."""
    os.killpg(process.pid, signal.SIGINT)


def wait_for(condition: Callable[[], bool], process: "Forked | subprocess.Popen[str]") -> None:
    """Until `condition` holds; fails if `process` ends before or patience does."""
    until = time.monotonic() + PATIENCE_S
    while not looked(condition, 0.05):
        assert process.poll() is None, f"ended too early: {process.communicate()}"
        assert time.monotonic() < until, "waited too long"


def tree(folder: Path) -> Mapping[str, str]:
    """Every file and folder below, with what it holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
    }
