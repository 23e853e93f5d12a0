"""A slot: runs one trial after the other, each in a child process of its own.

A trial cannot affect the driver or other trials, since its process ends with the trial.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from orchestrator.conductor.messages import Reply
from orchestrator.drivers.checkpoint_stores import Unreachable, store_at
from orchestrator.drivers.jobs import WorkerJob
from orchestrator.drivers.worker import Harness
from orchestrator.errors import InputError
from orchestrator.isolation.child_server import ChildServer, settings_here
from orchestrator.isolation.messages import ChildEnded, ChildOrder
from orchestrator.isolation.working_folder import LaunchFiles, WorkingFolder, kept_files
from orchestrator.spec.section import threads_of
from orchestrator.trials import DeathCause, Outcome, OutcomeKind
from trainables.generator_state import seed_generators
from trainables.process_identity import process_label
from trainables.protocol import TRIALS

FROM_OUTSIDE = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
    | {signal.SIGUSR1, signal.SIGUSR2}
)
"""Signals of people, watchdogs, batch systems and machines that shut down; others are faults of a program."""
SIGN_S = 60.0
"""Between two signs of life in a temporary folder of a trial."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """Instruction to a trial after a reply."""

    stop: Outcome | None = None
    """End the trial with this outcome."""
    save: bool = False
    """Whether to write a checkpoint before the trial ends."""
    heard: bool = True
    """Whether the ledger holds everything that the trial has reported."""


@dataclass(frozen=True, slots=True)
class ChildDied:
    """The process of a trial ended before the trial did."""

    reason: str
    cause: DeathCause
    outcome: Outcome | None = None
    """Outcome of a trial that ended its own process; None if the trial may run again."""


class Slot(Protocol):
    """Runs one trial at a time. A driver calls `start`, then `next` and `answer` in turn."""

    def start(self, order: WorkerJob) -> None:
        """Begin a trial, after the one before has ended or was killed."""

    def next(self, timeout_s: float) -> Reply | ChildDied | None:
        """What the trial did next; None if nothing happened for so long. Raises Unreachable."""

    def instruct(self, instruction: Instruction) -> None:
        """Let the trial go on after a reply that was not its end."""

    def kill(self) -> None:
        """End the process of the trial and all of its descendants."""

    def close(self) -> None:
        """End everything of the slot."""


class ProcessSlot:
    """A slot whose trials run in child processes."""

    def __init__(self, workload: str, launch_folder: Path, cpus: float, *, hides_gpus: bool = False) -> None:
        """Start a server that imports the trainable.

        Args:
            workload: `module:name` of the trainable.
            launch_folder: Folder from which the sweep was launched.
            cpus: Cores of a trial; its libraries use as many threads.
            hides_gpus: Whether trials see no GPU.
        """
        module = workload.partition(":")[0]
        settings = settings_here(
            module, launch_folder, [__name__], threads=threads_of(cpus), hides_gpus=hides_gpus
        )
        self._server = ChildServer(settings)
        self._temporary: Path | None = None
        self._signed_at = 0.0
        self.owes_checkpoint = False
        """Whether the trial waits to write a checkpoint until the ledger holds all of its reports."""

    def start(self, order: WorkerJob) -> None:
        """Begin a trial, after the one before has ended or was killed."""
        if not order.kept.parents[1].is_dir():  # the folder of the sweep, on a machine without shared files
            scratch = Path(tempfile.mkdtemp(prefix=f"{TRIALS}{process_label()}-"))
            order = replace(order, scratch=scratch, job=replace(order.job, folder=scratch / "files"))
            self._temporary, self._signed_at = scratch, time.monotonic()
        self._server.start(ChildOrder(f"{__name__}:run_trial", order, order.log, order.scratch))

    def next(self, timeout_s: float) -> Reply | ChildDied | None:
        """What the trial did next; None if nothing happened for so long.

        Raises:
            Unreachable: The trial cannot begin, since the store of its checkpoints does not answer.
        """
        self._show_life()
        message = self._server.receive(timeout_s)
        if message is None:
            return None
        if isinstance(message, ChildEnded):
            return died_of(message)
        if isinstance(message, Unreachable):
            raise message
        reply, self.owes_checkpoint = message
        assert isinstance(reply, Reply), "trials send replies"
        return reply

    def _show_life(self) -> None:
        """Touch the trial's temporary folder, so that other machines do not take it for abandoned."""
        if self._temporary is not None and time.monotonic() - self._signed_at >= SIGN_S:
            self._signed_at = time.monotonic()
            with suppress(OSError):  # the trial has ended, and its folder is gone
                os.utime(self._temporary)

    def instruct(self, instruction: Instruction) -> None:
        """Let the trial go on after a reply that was not its end."""
        self._server.send(instruction)

    def kill(self) -> None:
        """End the process of the trial and all of its descendants."""
        self._server.kill()

    def close(self) -> None:
        """End everything of the slot."""
        self._server.close()


def died_of(ended: ChildEnded) -> ChildDied:
    """Return the error for a process that ended before its trial."""
    if ended.exit_code >= 0:
        reason = (
            f"the training code ended its process with exit code {ended.exit_code}, as os._exit does; a "
            "trial must return from its training function or raise an exception"
        )
        return ChildDied(reason, DeathCause.TRIAL, Outcome(OutcomeKind.CRASHED, reason))
    reason = f"the trial's process {ended.words}"
    if ended.lacked_memory:
        return ChildDied(f"{reason} when memory ran out", DeathCause.MEMORY)
    from_outside = -ended.exit_code in FROM_OUTSIDE
    return ChildDied(reason, DeathCause.OUTSIDE if from_outside else DeathCause.TRIAL)


def run_trial(order: WorkerJob, connection: Connection, files: LaunchFiles) -> None:
    """Run a trial in this child process, and send its replies on the connection."""
    _limit_libraries(order)
    seed_generators(order.job.seed)
    exempt = (order.kept.parents[1], order.job.data_dir)
    folder = WorkingFolder(files, order.working_folder, order.scratch, exempt)
    try:
        harness = Harness(
            order.workload,
            order.checkpoint_seconds,
            store=store_at(order.store),
            check=folder.require_unwritten,
        )
        folder.enter()
    except (InputError, OSError) as error:
        connection.send(
            (Reply(ended=Outcome(OutcomeKind.CRASHED, f"the trial cannot begin: {error}")), False)
        )
        return
    harness.start(order.job, order.checkpoints)
    answer = Instruction()
    while True:
        if answer.stop is not None:
            saved = harness.stop(save=answer.save)
            reply = Reply(checkpoint=saved.checkpoint, ended=answer.stop)
        else:
            try:
                reply = harness.advance(heard=answer.heard)
            except Unreachable as error:
                connection.send(error)
                return
        if reply.ended is not None:
            _keep(order, folder)
        connection.send((reply, harness.owes_checkpoint))
        if reply.ended is not None:
            return
        answer = connection.recv()


def _limit_libraries(order: WorkerJob) -> None:
    """Limit CPU threads to the requested cores, and GPU memory to the requested share of a GPU."""
    if (torch := sys.modules.get("torch")) is None:
        return
    torch.set_num_threads(threads_of(order.cpus))
    if 0 < order.gpus < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(order.gpus)


def _keep(order: WorkerJob, folder: WorkingFolder) -> None:
    """Copy the trial's files that match `keep`. Files that cannot be copied are reported and skipped."""
    own = [order.scratch / "files", *([folder.path] if order.working_folder == "private" else [])]
    for source, name in kept_files(order.keep, own):
        if source == folder.path / name and not folder.is_of_trial(str(name)):
            continue
        target = order.kept / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(shutil.SameFileError):
                shutil.copy2(source, target)
        except OSError as error:
            print(f"{name} cannot be kept: {error}", file=sys.stderr)
