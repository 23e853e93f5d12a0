"""Run a session on Ray in a watched child process, and restart a private Ray after a failure.

When a private Ray loses a server, all of its processes are killed and another Ray is started. Running trials
continue from their last checkpoints.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import ExecutorError
from orchestrator.execution.ray.driver import EXIT_WAIT_S, DriverEnd, DriverOrder, RayDriver
from orchestrator.execution.session import Session
from orchestrator.execution.signals import delayed_interrupts
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.watchdog import silence_limit

MAX_RESTARTS = 3
RESTART_WINDOW_S = 3600.0
"""Maximum number of restarts of Ray within `RESTART_WINDOW_S` seconds."""
POLL_S = 0.1
MAX_COUNTED_S = 1.0
"""Maximum seconds counted between two polls, since the machine or this process may have been suspended."""
START_TIMEOUT_S, HANG_TIMEOUT_S = 900.0, 300.0
"""Seconds that Ray's driver may be silent before its first call, and after it."""


def run_ray(
    recorder: Recorder,
    order: DriverOrder,
    log: Path,
    *,
    on_change: Callable[[], None],
    stop: threading.Event,
    check: Callable[[], None],
    warn: Callable[[str], None],
    on_ending: Callable[[], None],
) -> None:
    """Run trials until the sweep is finished or drained. A KeyboardInterrupt ends the run at once.

    Args:
        recorder: The open sweep.
        order: Trials for Ray's driver, and the Ray to run them on.
        log: File for output of Ray.
        on_change: Called after every recorded change.
        stop: Once set, running trials write a checkpoint at their next report and end as stopped.
        check: Called often; an exception that it raises ends the run at once.
        warn: Called with warnings for the user.
        on_ending: Called once all trials have ended, before the wait for Ray to exit.

    Raises:
        InputError: No cluster is at the address, or a trial fits on none of its nodes.
        ExecutorError: Ray cannot be started, has died too often, or is an existing cluster that has died.
    """
    silence_s, clock = silence_limit(order.resources), RunningTimeClock()
    session = Session(recorder, stop, on_change, check, warn, silence_s, clock)
    restarts = _Restarts(order.address, log)
    while (error := _run_once(session, order, log, on_ending)) is not None:
        session.record_all_deaths(f"Ray ended: {error}")
        if session.recorder.drain_reason:
            return
        session.warn(restarts.record_failure(error))


@dataclass
class _Restarts:
    """Recent failures of Ray, which limit its restarts."""

    address: str | None
    log: Path
    failed_at: deque[float] = field(default_factory=deque)

    def record_failure(self, reason: str) -> str:
        """Return the warning that Ray is restarted. Raise `ExecutorError` if no restart is allowed."""
        if self.address is not None:
            raise ExecutorError(
                f"the Ray cluster at {self.address} is not available: {reason}; no recorded result is lost: "
                "resume the sweep when the cluster is available again"
            )
        now = time.monotonic()
        self.failed_at.append(now)
        while now - self.failed_at[0] > RESTART_WINDOW_S:
            self.failed_at.popleft()
        if len(self.failed_at) > MAX_RESTARTS:
            raise ExecutorError(
                f"Ray ended {len(self.failed_at)} times, most recently because {reason}; no recorded result "
                f"is lost: see {self.log} and the memory of this machine, then resume the "
                "sweep; `--driver inline` needs no Ray"
            )
        return (
            f"Ray ended: {reason}; it restarts (time {len(self.failed_at)} of at most {MAX_RESTARTS}), and "
            "running trials continue from their last checkpoints"
        )


class RunningTimeClock:
    """Clock that counts seconds while this process runs, so that a suspended machine times out no trial."""

    def __init__(self) -> None:
        """Start the clock at 0 s."""
        self._read_at, self._passed_s = time.monotonic(), 0.0

    def __call__(self) -> float:
        """Return the elapsed seconds; must be called often."""
        now = time.monotonic()
        self._passed_s += min(now - self._read_at, MAX_COUNTED_S)
        self._read_at = now
        return self._passed_s


def _run_once(session: Session, order: DriverOrder, log: Path, on_ending: Callable[[], None]) -> str | None:
    """Return why Ray ended before the session was over; None if the session is over."""
    with RayDriver(order, log) as driver:
        has_called, running_clock = False, RunningTimeClock()
        last_message_at, finished_at = running_clock(), None
        while True:
            with delayed_interrupts():
                session.check_stop()
            if session.recorder.drain_reason and not has_called:
                session.end_unstarted()
                return None
            if session.recorder.is_finished and finished_at is None:
                finished_at = running_clock()
                on_ending()
            if finished_at is not None and running_clock() - finished_at > EXIT_WAIT_S:
                return None  # all results are recorded, so Ray is killed
            if dead_server := driver.dead_server():
                return dead_server
            has_message, now = driver.poll(POLL_S), running_clock()
            if not has_message:
                if now - last_message_at > (HANG_TIMEOUT_S if has_called else START_TIMEOUT_S):
                    return f"its driver has not answered for {now - last_message_at:.0f} s"
                continue
            last_message_at = now
            with delayed_interrupts():
                ending = _answer_call(driver, session)
            if ending is not None:
                return ending.error or None
            has_called = True


def _answer_call(driver: RayDriver, session: Session) -> DriverEnd | None:
    """Answer the next call of the driver; if it has ended, return its last message or raise its error."""
    message = driver.receive()
    if not isinstance(message, DriverEnd):
        name, arguments = message
        driver.answer(getattr(session, name)(*arguments))
        return None
    if message.kind is not None:
        raise message.kind(message.error)
    return message
