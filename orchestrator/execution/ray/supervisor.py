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
from orchestrator.execution.ray.driver import END_S, DriverEnded, DriverOrder, RayDriver
from orchestrator.execution.ray.node_check import NodeRequirements
from orchestrator.execution.session import Session
from orchestrator.execution.signals import delayed_interrupts
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.trial_jobs import JobEncoder
from orchestrator.execution.trial.watchdog import silence_limit
from orchestrator.spec.section import Resources

RESTARTS = 3
WINDOW_S = 3600.0
"""Maximum number of restarts of Ray within `WINDOW_S` seconds."""
POLL_S = 0.1
LONGEST_STEP_S = 1.0
"""Maximum seconds counted between two polls, since the machine or this process may have been suspended."""
BEGIN_S, HANG_S = 900.0, 300.0
"""Seconds that Ray's driver may be silent before its first call, and after it."""


def run_ray(
    recorder: Recorder,
    workload: str,
    *,
    resources: Resources,
    data_dir: Path,
    launch_folder: Path | None = None,
    keep: tuple[str, ...] = (),
    needs: NodeRequirements | None = None,
    checkpoints: str | None = None,
    address: str | None = None,
    num_cpus: int | None = None,
    log: Path | None = None,
    on_change: Callable[[], None] | None = None,
    stop: threading.Event | None = None,
    check: Callable[[], None] | None = None,
    warn: Callable[[str], None] | None = None,
    on_ending: Callable[[], None] = lambda: None,
) -> None:
    """Run trials until the sweep is finished or drained. A KeyboardInterrupt ends the run at once.

    Args:
        recorder: The open sweep.
        workload: `module:name` of the trainable.
        resources: Resources of each trial.
        data_dir: Folder for datasets, shared by all trials.
        launch_folder: Folder for relative paths in trials, by default the working directory.
        keep: Patterns of files of a trial that are retained.
        checkpoints: URI of a checkpoint store; None for the folder of the sweep.
        on_change: Called after every recorded change.
        stop: Once set, running trials write a checkpoint at their next report and end as stopped.
        check: Called often; an exception that it raises ends the run at once.
        needs: Requirements that nodes of an existing cluster must meet before they receive trials.
        address: Address of an existing cluster; None to start a private Ray on this machine.
        num_cpus: CPUs of a private Ray, by default all CPUs of this process.
        log: File for output of Ray.
        warn: Called with warnings for the user.
        on_ending: Called once all trials have ended, before the wait for Ray to exit.

    Raises:
        InputError: No cluster is at the address, or a trial fits on none of its nodes.
        ExecutorError: Ray cannot be started, has died too often, or is an existing cluster that has died.
    """
    orders = JobEncoder(
        workload,
        resources.checkpoint_seconds,
        resources.cpus,
        resources.gpus,
        data_dir,
        checkpoints,
        (needs.mark, needs.nonce) if needs is not None else None,
        launch_folder=launch_folder or Path.cwd(),
        keep=keep,
        working_folder=resources.working_folder,
    )
    session = Session(recorder, stop or threading.Event())
    session.on_change = on_change or session.on_change
    session.check = check or session.check
    session.warn = warn or session.warn
    session.silence_s, session.clock = silence_limit(resources), RunningTimeClock()
    order = DriverOrder(resources, address, needs, orders, num_cpus)
    restarts = _Restarts(address, log)
    while (error := _run_once(session, order, log, on_ending)) is not None:
        session.record_all_deaths(f"Ray ended: {error}")
        if session.recorder.draining:
            return
        session.warn(restarts.allow(error))


@dataclass
class _Restarts:
    """Recent failures of Ray, which limit its restarts."""

    address: str | None
    log: Path | None
    ends: deque[float] = field(default_factory=deque)

    def allow(self, died: str) -> str:
        """Return the warning that Ray is restarted. Raise `ExecutorError` if no restart is allowed."""
        if self.address is not None:
            raise ExecutorError(
                f"the Ray cluster at {self.address} is not available: {died}; no recorded result is lost: "
                "resume the sweep when the cluster is available again"
            )
        now = time.monotonic()
        self.ends.append(now)
        while now - self.ends[0] > WINDOW_S:
            self.ends.popleft()
        if len(self.ends) > RESTARTS:
            raise ExecutorError(
                f"Ray ended {len(self.ends)} times, most recently because {died}; no recorded result is "
                f"lost: see {self.log or 'its log'} and the memory of this machine, then resume the "
                "sweep; `--driver inline` needs no Ray"
            )
        return (
            f"Ray ended: {died}; it is started again (time {len(self.ends)} of at most {RESTARTS}), and "
            "running trials go on from their last checkpoints"
        )


class RunningTimeClock:
    """Clock that counts seconds while this process runs, so that a suspended machine times out no trial."""

    def __init__(self) -> None:
        """Start the clock at 0 s."""
        self._read_at, self._passed_s = time.monotonic(), 0.0

    def __call__(self) -> float:
        """Return the elapsed seconds; must be called often."""
        now = time.monotonic()
        self._passed_s += min(now - self._read_at, LONGEST_STEP_S)
        self._read_at = now
        return self._passed_s


def _run_once(
    session: Session, order: DriverOrder, log: Path | None, on_ending: Callable[[], None]
) -> str | None:
    """Return why Ray ended before the session was over; None if the session is over."""
    with RayDriver(order, log) as driver:
        has_called, own_time = False, RunningTimeClock()
        heard_at, finished_at = own_time(), None
        while True:
            with delayed_interrupts():
                session.check_stop()
            if session.recorder.draining and not has_called:
                session.end_unstarted()
                return None
            if session.recorder.finished and finished_at is None:
                finished_at = own_time()
                on_ending()
            if finished_at is not None and own_time() - finished_at > END_S:
                return None  # all results are recorded, so Ray is killed
            if dead_server := driver.dead_server():
                return dead_server
            has_message, now = driver.poll(POLL_S), own_time()
            if not has_message:
                if now - heard_at > (HANG_S if has_called else BEGIN_S):
                    return f"its driver has not answered for {now - heard_at:.0f} s"
                continue
            heard_at = now
            with delayed_interrupts():
                message = driver.receive()
                if isinstance(message, DriverEnded):
                    if message.kind is not None:
                        raise message.kind(message.error)
                    return message.error or None
                has_called = True
                name, arguments = message
                driver.answer(getattr(session, name)(*arguments))
