"""Runs a session on a Ray that may die: Ray's driver is a child process, which the launching process watches.

When a private Ray loses a server, all of its processes are killed and another Ray is started: running trials
continue from their last checkpoints.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import ExecutorError
from orchestrator.execution.ray.driver import DriverEnded, DriverOrder, RayDriver
from orchestrator.execution.ray.node_check import NodeRequirements
from orchestrator.execution.session import Session
from orchestrator.execution.signals import undisturbed
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.jobs import JobEncoder
from orchestrator.execution.trial.watchdog import silence_limit
from orchestrator.spec.section import Resources

RESTARTS = 3
WINDOW_S = 3600.0
"""Ray is started again at most so often within so many seconds."""
POLL_S = 0.1
LONGEST_STEP_S = 1.0
"""More time between two looks does not count: the machine was suspended, or Ctrl-Z stopped this process."""
BEGIN_S, HANG_S = 900.0, 300.0
"""Seconds that Ray's driver may be silent before its first call, and afterwards."""


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
) -> None:
    """Run until the sweep is finished or drained. A KeyboardInterrupt ends the run at once.

    Further arguments are those of `run_inline`.

    Args:
        resources: Resources of each trial.
        needs: Requirements that nodes of an existing cluster are checked for before they get trials.
        address: Address of an existing cluster; None to start a Ray on this machine.
        num_cpus: CPUs of a private Ray; by default all that this process may use.
        log: File for output of Ray.
        warn: Called with warnings for the user.

    Raises:
        InputError: There is no such cluster, or a trial fits on none of its nodes.
        ExecutorError: Ray cannot be started, has died too often, or has died and belongs to others.
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
    session.changed = on_change or session.changed
    session.check = check or session.check
    session.tell = warn or session.tell
    session.silence_s, session.clock = silence_limit(resources), OwnTime()
    order = DriverOrder(resources, address, needs, orders, num_cpus)
    restarts = _Restarts(address, log)
    while (error := _run_once(session, order, log)) is not None:
        session.all_lost(f"Ray ended: {error}")
        if session.recorder.draining:
            return
        session.tell(restarts.allow(error))


@dataclass
class _Restarts:
    """How often Ray has died lately."""

    address: str | None
    log: Path | None
    ends: deque[float] = field(default_factory=deque)

    def allow(self, died: str) -> str:
        """Return the warning that Ray is started again; raise ExecutorError if it is not."""
        if self.address is not None:
            raise ExecutorError(
                f"the Ray cluster at {self.address} must stay up, and {died}; nothing recorded is lost: "
                "resume the sweep when the cluster is there again"
            )
        now = time.monotonic()
        self.ends.append(now)
        while now - self.ends[0] > WINDOW_S:
            self.ends.popleft()
        if len(self.ends) > RESTARTS:
            raise ExecutorError(
                f"Ray must stay up, and ended {len(self.ends)} times, last because {died}; nothing recorded "
                f"is lost: see {self.log or 'its log'} and the memory of this machine, then resume the "
                "sweep; `--driver inline` needs no Ray"
            )
        return (
            f"Ray ended: {died}; it is started again (time {len(self.ends)} of at most {RESTARTS}), and "
            "running trials go on from their last checkpoints"
        )


class OwnTime:
    """Seconds that this process was running; a suspended machine makes no trial silent."""

    def __init__(self) -> None:
        """Begin at 0."""
        self._read_at, self._passed_s = time.monotonic(), 0.0

    def __call__(self) -> float:
        """Return the seconds; to be called often."""
        now = time.monotonic()
        self._passed_s += min(now - self._read_at, LONGEST_STEP_S)
        self._read_at = now
        return self._passed_s


def _run_once(session: Session, order: DriverOrder, log: Path | None) -> str | None:
    """Return why Ray ended before the session was over; None if the session is over."""
    with RayDriver(order, log) as driver:
        has_called, own_time = False, OwnTime()
        heard_at = own_time()
        while True:
            with undisturbed():
                session.tick()
            if session.recorder.draining and not has_called:
                session.give_up()
                return None
            if dead := driver.dead_server():
                return dead
            has_message, now = driver.poll(POLL_S), own_time()
            if not has_message:
                if now - heard_at > (HANG_S if has_called else BEGIN_S):
                    return f"its driver has not answered for {now - heard_at:.0f} s"
                continue
            heard_at = now
            with undisturbed():
                message = driver.receive()
                if isinstance(message, DriverEnded):
                    if message.kind is not None:
                        raise message.kind(message.error)
                    return message.error or None
                has_called = True
                name, arguments = message
                driver.answer(getattr(session, name)(*arguments))
