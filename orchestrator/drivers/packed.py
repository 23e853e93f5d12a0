"""Several trials in one process, each with a harness and a thread of its own, that take their steps together.

What a driver does with one harness it does with each here, reply by reply: `next` gives the replies of any of
them, `answer` lets the one that waits for it go on. A trial that ends leaves the others alone. A trial that
hangs holds up all, and cannot be reached: threads have no alarms.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.conductor.messages import Reply
from orchestrator.drivers.checkpoint_stores import store_at
from orchestrator.drivers.output import ThreadOutput, heard_apart
from orchestrator.drivers.worker import Harness
from orchestrator.trials import Outcome
from trainables.meeting import GivenUp, Meeting
from trainables.protocol import Job

PATIENCE_S = 10.0
"""How long threads of trials that are given up are waited for."""


@dataclass(frozen=True, slots=True)
class PackedJob:
    """What one of the trials is started with."""

    job: Job
    checkpoints: Path
    log: Path | None


@dataclass(frozen=True, slots=True)
class _ReportAnswer:
    """What a trial does next, after a reply."""

    stop: Outcome | None
    save: bool
    heard: bool


@dataclass
class _Member:
    harness: Harness
    answers: queue.SimpleQueue[_ReportAnswer] = field(default_factory=queue.SimpleQueue)


class PackedTrials:
    """Trials of one trainable; `threads` is open in each of theirs."""

    def __init__(
        self,
        workload: str,
        checkpoint_seconds: float,
        *,
        store: str | None,
        threads: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._workload = workload
        self._checkpoint_seconds = checkpoint_seconds
        self._store = store
        self._threads = threads
        self._meeting = Meeting()
        self._members: list[_Member] = []
        self._replies: queue.SimpleQueue[tuple[int, Reply | BaseException]] = queue.SimpleQueue()

    @contextmanager
    def running(self, jobs: Sequence[PackedJob]) -> Iterator[None]:
        """Inside, the trials of `jobs` run; what has not ended at the end is given up."""
        outputs = [ThreadOutput() for _ in jobs]
        self._members = [
            _Member(
                Harness(
                    self._workload,
                    self._checkpoint_seconds,
                    store=store_at(self._store),
                    output=output,
                    beside=True,
                )
            )
            for output in outputs
        ]
        self._meeting.expect(len(jobs))
        living = [
            threading.Thread(target=self._live, args=(number, each), name=f"trial-{number}", daemon=True)
            for number, each in enumerate(jobs)
        ]
        with heard_apart(outputs):
            for thread in living:
                thread.start()
            try:
                yield
            finally:
                self._meeting.give_up()
                for thread in living:
                    thread.join(PATIENCE_S)

    def next(self, patience_s: float) -> tuple[int, Reply] | None:
        """The number of a trial and its reply; None if there is none for so long. Raises Unreachable."""
        try:
            number, reply = self._replies.get(timeout=patience_s)
        except queue.Empty:
            return None
        if isinstance(reply, BaseException):
            raise reply
        return number, reply

    def answer(self, number: int, *, stop: Outcome | None = None, save: bool = False, heard: bool) -> None:
        """Let a trial go on after a reply that was not its end, or stop it, with a checkpoint if `save`.

        `heard`: as of `Harness.advance`.
        """
        self._members[number].answers.put(_ReportAnswer(stop, save, heard))

    def _live(self, number: int, start: PackedJob) -> None:
        """One trial, in its own thread."""
        try:
            with self._meeting.member(), self._threads():
                self._run(number, start)
        except GivenUp:
            return
        except BaseException as error:  # whatever it is, the driver's thread raises it
            self._replies.put((number, error))

    def _run(self, number: int, start: PackedJob) -> None:
        member = self._members[number]
        member.harness.start(start.job, start.checkpoints, start.log)
        heard = True
        while True:
            reply = member.harness.advance(heard=heard)
            self._replies.put((number, reply))
            if reply.ended is not None:
                return
            with self._meeting.away():
                answer = self._answer(member)
            heard = answer.heard
            if answer.stop is not None:
                saved = member.harness.stop(save=answer.save)
                self._replies.put((number, Reply(checkpoint=saved.checkpoint, ended=answer.stop)))
                return

    def _answer(self, member: _Member) -> _ReportAnswer:
        while True:
            try:
                return member.answers.get(timeout=1.0)
            except queue.Empty:
                self._meeting.check()
