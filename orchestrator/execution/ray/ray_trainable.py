"""The trial actor: a class trainable for Ray Tune. It owns a slot, and serves trial after trial.

What Tune sees of a trial is a stream of results that carry replies. Settings are sent once, as JSON. Results
omit the fields that Tune would add: configuration, host, date. Neither Tune nor PyTorch is imported here.
"""

import os
import time
from pathlib import Path
from typing import Any

from orchestrator.conductor.messages import Reply
from orchestrator.execution.ray.node_check import seen
from orchestrator.execution.trial.jobs import WorkerJob, decode
from orchestrator.execution.trial.trial_process import ChildDied, Instruction, ProcessSlot
from orchestrator.trials import Outcome

WORKER_JOB = "worker_job"
"""Key of the configuration that holds the encoded assignment."""
REPLIES = "replies"
"""Key of a result that holds the replies since the last one, oldest first."""
OVER = "over"
"""Key of a result that says whether the trial has ended."""
DIED = "died"
"""Key of a result with the reason and the cause why the process of the trial died; None if it did not."""
UNFIT = "this node does not see the folder of sweeps"
"""Of an error that is no fault of the trial: it goes to another node."""
REPORT_S = 0.05
"""Reports are sent together for so long: a trial of many short steps must not wait for a round trip each."""
WAIT_S = 60.0


class TrialActor:
    """One worker. Tune creates it, calls `train` for each report, and `reset` for the next trial."""

    def __init__(self, config: dict[str, Any], **_: Any) -> None:
        """Start the slot and the first trial."""
        job = decode(config[WORKER_JOB])
        if job.store is None and job.mark and not seen(Path(job.mark[0]), job.mark[1]):
            # It joined a moment ago, and nobody has asked it yet.
            raise RuntimeError(UNFIT)
        # Tune requires it: forks made by Lightning deadlock with threads of Ray.
        os.environ.setdefault("PL_DISABLE_FORK", "1")
        # Ray hides GPUs only from actors that hold some.
        self._stopping: Instruction | None = None
        self._written, self._owes_answer = True, False
        self._slot = ProcessSlot(job.workload, job.launch_folder, job.cpus, hides_gpus=not job.gpus)
        self._start(job)

    def reset(self, new_config: dict[str, Any], *_: Any, **__: Any) -> bool:
        """Start the next trial."""
        self._start(decode(new_config[WORKER_JOB]))
        return True

    def train(self) -> dict[str, Any]:
        """Work on until a report is due."""
        if self._owes_answer:
            # Tune calls again after it has passed on all earlier results.
            self._slot.instruct(self._stopping or Instruction(is_recorded=self._written))
            self._owes_answer = False
        replies: list[Reply] = []
        due_at = float("inf")
        while True:
            reply = self._slot.next(min(WAIT_S, max(0.0, due_at - time.monotonic())))
            if isinstance(reply, ChildDied):
                if reply.outcome is None:
                    return {REPLIES: replies, DIED: (reply.reason, reply.cause), OVER: True}
                return {REPLIES: [*replies, Reply(ended=reply.outcome)], DIED: None, OVER: True}
            if reply is None:
                if replies:
                    return {REPLIES: replies, DIED: None, OVER: False}
                continue
            replies.append(reply)
            due_at = min(due_at, time.monotonic() + REPORT_S)
            if reply.ended is not None:
                return {REPLIES: replies, DIED: None, OVER: True}
            is_due = self._stopping is not None or time.monotonic() >= due_at
            if is_due or reply.checkpoint is not None or self._slot.is_checkpoint_pending:
                self._owes_answer = True
                return {REPLIES: replies, DIED: None, OVER: False}
            written = self._written and not any(each.measurement for each in replies)
            self._slot.instruct(Instruction(is_recorded=written))

    def let_go(self, outcome: Outcome, save: bool) -> None:
        """End the trial at the next `train`, with a checkpoint if `save`."""
        self._stopping = Instruction(stop=outcome, save=save)

    def wait_for_ledger(self, wait: bool) -> None:
        """Whether what this trial has reported is not written yet: then it makes no checkpoint."""
        self._written = not wait

    def get_auto_filled_metrics(self, *_: Any, **__: Any) -> dict[str, Any]:
        """What Tune takes for the result of a trial that has none: nothing."""
        return {}

    def stop(self) -> None:
        """The actor is about to exit."""
        self._slot.close()

    def _start(self, job: WorkerJob) -> None:
        self._stopping = None
        self._written, self._owes_answer = True, False
        self._slot.start(job)
