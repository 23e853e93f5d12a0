"""Implement Tune's trial actor, which owns a slot and runs trials one after another in its child process.

Tune receives each trial as a stream of results that contain replies. A job is sent once, as JSON. Results
omit the fields that Tune would add: configuration, host, date. This module imports neither Tune nor PyTorch.
"""

import os
import time
from pathlib import Path
from typing import Any

from orchestrator.conductor.messages import Reply
from orchestrator.execution.checkpoints.checkpoint_stores import StoreUnreachable
from orchestrator.execution.ray.node_check import is_marker_readable
from orchestrator.execution.trial.trial_jobs import WorkerJob, decode
from orchestrator.execution.trial.trial_process import ChildDeath, Instruction, ProcessSlot
from orchestrator.trials import DeathCause, Outcome

WORKER_JOB_KEY = "worker_job"
"""Configuration key of the encoded job."""
REPLIES_KEY = "replies"
"""Result key of the replies since the previous result, oldest first."""
HAS_ENDED_KEY = "over"
"""Result key of a boolean: whether the trial has ended."""
DEATH_KEY = "died"
"""Result key of the reason and cause of the death of the trial's process; None if it lives."""
UNSHARED_FOLDER_ERROR = "this node does not see the folder of sweeps"
"""Message of an error that the node causes, not the trial. The trial is moved to another node."""
REPORT_INTERVAL_S = 0.05
"""Seconds in which replies are collected, since a round trip per reply would delay trials of short steps."""
REPLY_WAIT_S = 60.0


class TrialActor:
    """Actor that Tune creates once. Tune calls `train` for each report and `reset` for the next trial."""

    def __init__(self, config: dict[str, Any], **_: Any) -> None:
        """Start the slot and the first trial."""
        job = decode(config[WORKER_JOB_KEY])
        if job.store is None and job.mark and not is_marker_readable(Path(job.mark[0]), job.mark[1]):
            # The node joined recently and has not been checked yet.
            raise RuntimeError(UNSHARED_FOLDER_ERROR)
        # Set as Tune does: forks by Lightning deadlock with threads of Ray.
        os.environ.setdefault("PL_DISABLE_FORK", "1")
        self._stop_instruction: Instruction | None = None
        self._is_written, self._must_answer = True, False
        # Ray hides GPUs only from actors that reserve some.
        self._slot = ProcessSlot(job.workload, job.launch_folder, job.cpus, hides_gpus=not job.gpus)
        self._start(job)

    def reset(self, new_config: dict[str, Any], *_: Any, **__: Any) -> bool:
        """Start the next trial."""
        self._start(decode(new_config[WORKER_JOB_KEY]))
        return True

    def train(self) -> dict[str, Any]:
        """Run the trial until a report is due, and return the result for Tune."""
        if self._must_answer:
            # Tune calls `train` again after it has processed all earlier results.
            self._slot.instruct(self._stop_instruction or Instruction(is_recorded=self._is_written))
            self._must_answer = False
        replies: list[Reply] = []
        due_at = float("inf")
        while True:
            try:
                reply = self._slot.next(min(REPLY_WAIT_S, max(0.0, due_at - time.monotonic())))
            except StoreUnreachable as error:  # the trial does not cause an outage of the store
                reply = ChildDeath(str(error), DeathCause.OUTSIDE)
            if isinstance(reply, ChildDeath):
                if reply.outcome is None:
                    return {REPLIES_KEY: replies, DEATH_KEY: (reply.reason, reply.cause), HAS_ENDED_KEY: True}
                return {
                    REPLIES_KEY: [*replies, Reply(ended=reply.outcome)],
                    DEATH_KEY: None,
                    HAS_ENDED_KEY: True,
                }
            if reply is None:
                if replies:
                    return {REPLIES_KEY: replies, DEATH_KEY: None, HAS_ENDED_KEY: False}
                continue
            replies.append(reply)
            due_at = min(due_at, time.monotonic() + REPORT_INTERVAL_S)
            if reply.ended is not None:
                return {REPLIES_KEY: replies, DEATH_KEY: None, HAS_ENDED_KEY: True}
            is_due = self._stop_instruction is not None or time.monotonic() >= due_at
            if is_due or reply.checkpoint is not None or self._slot.is_checkpoint_pending:
                self._must_answer = True
                return {REPLIES_KEY: replies, DEATH_KEY: None, HAS_ENDED_KEY: False}
            is_written = self._is_written and not any(reply.measurement for reply in replies)
            self._slot.instruct(Instruction(is_recorded=is_written))

    def end_trial(self, outcome: Outcome, save: bool) -> None:
        """End the trial at the next `train`, with a checkpoint if `save` is True."""
        self._stop_instruction = Instruction(stop=outcome, save=save)

    def wait_for_ledger(self, wait: bool) -> None:
        """Forbid checkpoints while `wait` is True, since the ledger may lack reports of the trial."""
        self._is_written = not wait

    def get_auto_filled_metrics(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return no metrics for a trial that has no result."""
        return {}

    def stop(self) -> None:
        """Close the slot before the actor exits."""
        self._slot.close()

    def _start(self, job: WorkerJob) -> None:
        self._stop_instruction = None
        self._is_written, self._must_answer = True, False
        self._slot.start(job)
