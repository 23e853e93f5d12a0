"""Run trials one after another in a slot, each in a separate child process.

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

from orchestrator.conductor.messages import Reply
from orchestrator.errors import InputError
from orchestrator.execution.checkpoints.checkpoint_stores import StoreUnreachable, make_store
from orchestrator.execution.trial.trial_jobs import WorkerJob
from orchestrator.execution.trial.worker import Harness
from orchestrator.files.redact import redact
from orchestrator.isolation.cache_folders import cache_folders
from orchestrator.isolation.child_server import ChildServer, settings_here
from orchestrator.isolation.messages import ChildEnded, ChildOrder
from orchestrator.isolation.working_folder import LaunchFiles, WorkingFolder, matching_files
from orchestrator.spec.section import thread_count
from orchestrator.trials import READ_FROM_OTHERS, DeathCause, Outcome, OutcomeKind
from trainables.custom.generator_state import seed_generators
from trainables.process_identity import process_label
from trainables.protocol import TRIALS

OUTSIDE_SIGNALS = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
    | {signal.SIGUSR1, signal.SIGUSR2}
)
"""Signals sent by people, watchdogs and batch systems. Any other signal counts as a fault of the trial."""
PRELOADED_MODULES = {"trainables.training": ["trainables.training.workload"]}
"""Modules that a trainable imports when a trial begins; the server of a slot imports them once."""
MAX_NAMED_FILES = 8
"""Maximum number of files of other trials that a report names."""
TOUCH_INTERVAL_S = 60.0
"""Seconds between two updates of the modification time of a trial's temporary folder."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """The driver's answer to a reply of a trial: continue or stop."""

    stop: Outcome | None = None
    """Outcome with which the trial must end; None if it continues."""
    save: bool = False
    """Whether to write a checkpoint before the trial ends."""
    is_recorded: bool = True
    """Whether the ledger contains all reports of the trial."""

    def follow(self, harness: Harness) -> Reply:
        """Continue or stop the trial of `harness`, and return its next reply."""
        if self.stop is None:
            return harness.advance(is_recorded=self.is_recorded)
        return Reply(checkpoint=harness.stop(save=self.save).checkpoint, ended=self.stop)


@dataclass(frozen=True, slots=True)
class ChildDeath:
    """Report that the process of a trial ended before the trial."""

    reason: str
    cause: DeathCause
    outcome: Outcome | None = None
    """Outcome if the trial ended its own process; None if the trial may run again."""


class ProcessSlot:
    """Slot that runs one trial at a time, each in a child process.

    A driver calls `start`, then `next` and `instruct` in turn.
    """

    def __init__(self, workload: str, launch_folder: Path, cpus: float, *, hides_gpus: bool = False) -> None:
        """Start a server that imports the trainable.

        Args:
            workload: `module:name` of the trainable.
            launch_folder: Folder from which the sweep was launched.
            cpus: Cores of a trial, and number of threads of its libraries.
            hides_gpus: Whether to hide all GPUs from trials.
        """
        module = workload.partition(":")[0]
        preloaded = [__name__, *PRELOADED_MODULES.get(module, ())]
        threads = thread_count(cpus)
        settings = settings_here(module, launch_folder, preloaded, threads=threads, hides_gpus=hides_gpus)
        self._server = ChildServer(settings)
        self._temporary_folder: Path | None = None
        self._touched_at = 0.0
        self.is_checkpoint_pending = False
        """Whether the trial will write a checkpoint as soon as the ledger contains all of its reports."""

    def start(self, order: WorkerJob) -> None:
        """Start a trial; the previous trial must have ended or been killed."""
        sweep_folder = order.kept_files.parents[1]
        if not sweep_folder.is_dir():  # a machine without shared files
            scratch = Path(tempfile.mkdtemp(prefix=f"{TRIALS}{process_label()}-"))
            order = replace(order, scratch=scratch, job=replace(order.job, folder=scratch / "files"))
            self._temporary_folder, self._touched_at = scratch, time.monotonic()
        self._server.start(ChildOrder(f"{__name__}:run_trial", order, order.log, order.scratch))

    def next(self, timeout_s: float) -> Reply | ChildDeath | None:
        """Return the trial's next reply, or how its process died; None after the timeout.

        Raises:
            StoreUnreachable: The trial cannot start, since the store of checkpoints does not respond.
        """
        self._touch_folder()
        message = self._server.receive(timeout_s)
        if message is None:
            return None
        if isinstance(message, ChildEnded):
            return explain_death(message)
        if isinstance(message, StoreUnreachable):
            raise message
        reply, self.is_checkpoint_pending = message
        assert isinstance(reply, Reply), "trials send replies"
        return reply

    def _touch_folder(self) -> None:
        """Touch the trial's temporary folder, so that other machines do not remove it as abandoned."""
        if self._temporary_folder is not None and time.monotonic() - self._touched_at >= TOUCH_INTERVAL_S:
            self._touched_at = time.monotonic()
            with suppress(OSError):  # the trial has ended, and its folder was deleted
                os.utime(self._temporary_folder)

    def instruct(self, instruction: Instruction) -> None:
        """Send the answer to a reply that was not the trial's last one."""
        self._server.send(instruction)

    def kill(self) -> None:
        """End the process of the trial and all of its descendants."""
        self._server.kill()

    def close(self) -> None:
        """End the trial, its descendants and all other processes of the slot."""
        self._server.close()


def explain_death(exit_status: ChildEnded) -> ChildDeath:
    """Return why the process of a trial ended before the trial."""
    if exit_status.exit_code >= 0:
        reason = (
            f"the training code ended its process with exit code {exit_status.exit_code}, e.g. by os._exit; "
            "let the training function return or raise an exception instead"
        )
        return ChildDeath(reason, DeathCause.TRIAL, Outcome(OutcomeKind.CRASHED, reason))
    reason = f"the trial's process {exit_status.words}"
    if exit_status.is_oom_kill:
        return ChildDeath(f"{reason} when memory ran out", DeathCause.MEMORY)
    is_external = -exit_status.exit_code in OUTSIDE_SIGNALS
    return ChildDeath(reason, DeathCause.OUTSIDE if is_external else DeathCause.TRIAL)


def run_trial(order: WorkerJob, connection: Connection, files: LaunchFiles) -> None:
    """Run a trial in this child process, and send its replies on the connection."""
    _limit_resources(order)
    seed_generators(order.job.seed)
    shared_folders = (order.kept_files.parents[1], order.job.data_dir, *order.open_files)
    unchecked_folders = (*shared_folders, *cache_folders(files.root))
    folder = WorkingFolder(files, order.working_folder, order.scratch, unchecked_folders)
    try:
        store = make_store(order.store)
        harness = Harness(
            order.workload,
            order.checkpoint_seconds,
            store=store,
            check=folder.check_writes,
            records_reads=order.records_reads,
        )
        folder.enter()
    except (InputError, OSError) as error:
        outcome = Outcome(OutcomeKind.CRASHED, f"the trial cannot start: {error}")
        connection.send((Reply(ended=outcome), False))
        return
    harness.start(order.job, order.checkpoints)
    instruction, has_ended = Instruction(), False
    while not has_ended:
        try:
            reply = instruction.follow(harness)
        except StoreUnreachable as error:
            connection.send(error)
            return
        if has_ended := reply.ended is not None:
            _copy_kept_files(order, folder)
        connection.send((_add_read_files(reply, folder), harness.is_checkpoint_pending))
        if not has_ended:
            instruction = connection.recv()


def _add_read_files(reply: Reply, folder: WorkingFolder) -> Reply:
    """Add the names of the files of other trials that the trial has read, for a warning of the report."""
    if reply.measurement is None or not folder.read_from_others:
        return reply
    names, num_more = (
        [*folder.read_from_others][:MAX_NAMED_FILES],
        len(folder.read_from_others) - MAX_NAMED_FILES,
    )
    text = ", ".join(names) + (f" and {num_more} more" if num_more > 0 else "")
    texts = {**reply.measurement.attributes, READ_FROM_OTHERS: redact(text)}
    return replace(reply, measurement=replace(reply.measurement, attributes=texts))


def _limit_resources(order: WorkerJob) -> None:
    """Limit CPU threads to the requested cores, and GPU memory to the requested share of a GPU."""
    if (torch := sys.modules.get("torch")) is None:
        return
    torch.set_num_threads(thread_count(order.cpus))
    if 0 < order.gpus < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(order.gpus)


def _copy_kept_files(order: WorkerJob, folder: WorkingFolder) -> None:
    """Copy the trial's files that match `keep`. Files that cannot be copied are reported and skipped."""
    trial_folders = [order.scratch / "files", *([folder.path] if order.working_folder == "private" else [])]
    for source, name in matching_files(order.keep, trial_folders):
        if source == folder.path / name and not folder.is_of_trial(str(name)):
            continue
        target = order.kept_files / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(shutil.SameFileError):
                shutil.copy2(source, target)
        except OSError as error:
            print(f"cannot copy {name}, which matches keep: {error}", file=sys.stderr)
