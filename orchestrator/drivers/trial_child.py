"""What the process of a trial does: set itself up, run the trial, and report over one connection."""

import atexit
import faulthandler
import fcntl
import os
import shutil
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from orchestrator.conductor.messages import Reply
from orchestrator.drivers.checkpoint_stores import Unreachable, store_at
from orchestrator.drivers.jobs import WorkerJob
from orchestrator.drivers.trial_messages import Answer
from orchestrator.drivers.worker import Harness
from orchestrator.drivers.working_folder import LaunchFiles, WorkingFolder, kept_files
from orchestrator.spec.section import threads_of
from trainables.generator_state import seed_generators

HIGH = 200
"""Descriptors from here on are not those of files that training code closes by their numbers."""
OOM_SCORE = "500"
"""The system ends a trial before the process that launched it when memory runs out."""
EXIT_S = 10
"""How long exit handlers of the training code may take."""


class TrialChild:
    """The one trial of this process."""

    def __init__(self, order: WorkerJob, trial: int, output: int | None, files: LaunchFiles) -> None:
        self._order = order
        self._connection = Connection(fcntl.fcntl(trial, fcntl.F_DUPFD_CLOEXEC, HIGH))
        os.close(trial)
        self._output = output
        self._folder = WorkingFolder(files, order.working_folder, order.scratch, (order.kept.parents[1], order.job.data_dir))

    def run(self) -> None:
        """Run the trial to its end, and end the process. Never returns."""
        exit_code = 1
        try:
            self._set_up()
            self._run()
            exit_code = 0
        except EOFError:
            pass  # the driver is gone
        except BaseException:
            traceback.print_exc()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, EXIT_S)
        with suppress(BaseException):
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(BaseException):
                stream.flush()
        os._exit(exit_code)

    def _set_up(self) -> None:
        if os.getpid() != os.getsid(0):
            os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")
        if self._output is not None:
            os.dup2(self._output, 1)
            os.dup2(self._output, 2)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
        faulthandler.enable()
        self._limit_libraries()
        seed_generators(self._order.job.seed)

    def _limit_libraries(self) -> None:
        """CPU threads as cores were asked for; with a share of a GPU goes that share of its memory."""
        if (torch := sys.modules.get("torch")) is None:
            return
        torch.set_num_threads(threads_of(self._order.cpus))
        if 0 < self._order.gpus < 1 and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(self._order.gpus)

    def _run(self) -> None:
        order = self._order
        harness = Harness(
            order.workload,
            order.checkpoint_seconds,
            store=store_at(order.store),
            check=self._folder.require_unwritten,
        )
        self._folder.enter()
        harness.start(order.job, order.checkpoints)
        heard = True
        while True:
            try:
                reply = harness.advance(heard=heard)
            except Unreachable as error:
                self._connection.send((error, False))
                return
            self._send(reply, owes_checkpoint=harness.owes_checkpoint)
            if reply.ended is not None:
                return
            answer: Answer = self._connection.recv()
            heard = answer.heard
            if answer.stop is not None:
                saved = harness.stop(save=answer.save)
                self._send(Reply(checkpoint=saved.checkpoint, ended=answer.stop))
                return

    def _send(self, reply: Reply, *, owes_checkpoint: bool = False) -> None:
        if reply.ended is not None:
            self._keep()
        self._connection.send((reply, owes_checkpoint))

    def _keep(self) -> None:
        """Copy the files that are to outlive the trial. A disk that refuses costs these files."""
        order = self._order
        folders = (self._folder.path, order.scratch / "files") if order.working_folder == "private" else ()
        for source, name in kept_files(order.keep, folders):
            try:
                (order.kept / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, order.kept / name)
            except OSError as error:
                print(f"{name} cannot be kept: {error}", file=sys.stderr)
