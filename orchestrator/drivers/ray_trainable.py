"""The trial actor: what Ray Tune calls of a class trainable, around the harness, used for trial after trial.

What Tune sees of a trial is a stream of results that carry replies. Settings travel once, as JSON; what Tune
would add to a result (configuration, host, date) is not sent back. Neither Tune nor Ray is imported here: a
worker without Tune, and the pandas that it loads, starts in half the time; see `ray_lean_workers`.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from orchestrator.conductor.messages import Reply
from orchestrator.drivers.checkpoint_stores import store_at
from orchestrator.drivers.jobs import WorkerJob, decode
from orchestrator.drivers.memory import Footprint
from orchestrator.drivers.node_check import seen
from orchestrator.drivers.output import ProcessOutput
from orchestrator.drivers.worker import Harness
from orchestrator.spec.section import threads_of
from orchestrator.trials import Outcome

WORKER_JOB = "worker_job"
"""Key of the configuration that holds the encoded assignment."""
REPLIES = "replies"
"""Key of a result that holds the replies since the last one, oldest first."""
OVER = "over"
"""Key of a result that says whether the trial has ended."""
UNFIT = "this node does not see the folder of sweeps"
"""Of an error that is no fault of the trial: it goes to another node."""
REPORT_S = 0.05
"""Reports are sent together for so long: a trial of many short steps must not wait for a round trip each."""


class TrialActor:
    """One worker. Tune creates it, calls `train` for each report, and `reset` for the next trial."""

    def __init__(self, config: dict[str, Any], **_: Any) -> None:
        """Prepare the process and start the first trial."""
        job = decode(config[WORKER_JOB])
        if job.store is None and job.mark and not seen(Path(job.mark[0]), job.mark[1]):
            # It joined a moment ago, and nobody has asked it yet.
            raise RuntimeError(UNFIT)
        _limit_process(job)
        self._harness = Harness(
            job.workload, job.checkpoint_seconds, store=store_at(job.store), output=ProcessOutput()
        )
        _limit_libraries(job)
        self._footprint = Footprint()
        self._spent = False
        self._stopping: tuple[Outcome, bool] | None = None
        self._start(job)

    def reset(self, new_config: dict[str, Any], *_: Any, **__: Any) -> bool:
        """Start the next trial; False if the last left so much behind that another process must take it."""
        if self._spent:
            return False
        self._start(decode(new_config[WORKER_JOB]))
        return True

    def train(self) -> dict[str, Any]:
        """Work on until a report is due."""
        replies: list[Reply] = []
        due_at = time.monotonic() + REPORT_S
        while True:
            # Tune asks for more when it has passed on all that was reported before.
            heard = self._written and not any(each.measurement for each in replies)
            reply = self._step(heard=heard)
            replies.append(reply)
            if reply.ended is not None:
                self._spent = not self._footprint.settled()
            due = self._harness.owes_checkpoint or time.monotonic() >= due_at
            if reply.ended is not None or reply.checkpoint is not None or due:
                return {REPLIES: replies, OVER: reply.ended is not None}

    def let_go(self, outcome: Outcome, save: bool) -> None:
        """The conductor stopped the trial: the next `train` ends it, with a checkpoint if `save`."""
        self._stopping = (outcome, save)

    def wait_for_ledger(self, wait: bool) -> None:
        """Whether what this trial has reported is not written yet: then it makes no checkpoint."""
        self._written = not wait

    def get_auto_filled_metrics(self, *_: Any, **__: Any) -> dict[str, Any]:
        """What Tune takes for the result of a trial that has none: nothing."""
        return {}

    def stop(self) -> None:
        """The actor is about to exit."""
        self._harness.stop(save=False)

    def _start(self, job: WorkerJob) -> None:
        self._stopping = None
        self._written = True
        self._harness.start(job.job, job.checkpoints, job.log)

    def _step(self, *, heard: bool) -> Reply:
        if self._stopping is None:
            return self._harness.advance(heard=heard)
        outcome, save = self._stopping
        return Reply(checkpoint=self._harness.stop(save=save).checkpoint, ended=outcome)


def _limit_process(job: WorkerJob) -> None:
    """As many threads as CPUs were asked for, and no GPU where none was; before torch is loaded."""
    if not job.gpus:
        # Ray hides GPUs from those who hold some only.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # As Tune has it: what Lightning would fork deadlocks with what Ray has begun.
    os.environ.setdefault("PL_DISABLE_FORK", "1")
    threads = str(threads_of(job.cpus))
    os.environ.update(OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(int(threads))


def _limit_libraries(job: WorkerJob) -> None:
    """With a share of a GPU goes that share of its memory: a trial that needs more must not starve others."""
    torch = sys.modules.get("torch")
    if torch is not None and 0 < job.gpus < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(job.gpus)
