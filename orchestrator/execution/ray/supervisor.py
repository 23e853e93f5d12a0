"""Runs a session on a Ray that may die: Ray's driver has a process of its own, which is watched from here.

Ray's core may end the process it is in, and some of its calls never return once its servers are gone; it also
writes what it likes to the standard output. So nothing of it is loaded here. When a Ray of this machine's own
loses a server, everything of it is killed and another one is started: running trials go on from their last
checkpoints.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orchestrator.errors import ExecutorError
from orchestrator.execution.ray.node_check import NodeRequirements
from orchestrator.execution.ray.pipe import Begin, Connected, Failed, Over
from orchestrator.execution.ray.ray_child import RayChild
from orchestrator.execution.session import Session
from orchestrator.execution.signals import undisturbed
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.jobs import JobEncoder
from orchestrator.execution.trial.watchdog import silence_limit
from orchestrator.spec.section import Resources

RESTARTS = 3
WINDOW_S = 3600.0
"""So many restarts are made within so many seconds."""
POLL_S = 0.1
LONGEST_STEP_S = 1.0
"""More time between two looks is not this process's: the machine slept, or was stopped by Ctrl-Z."""
BEGIN_S, HANG_S = 900.0, 300.0
"""How long Ray's driver may say nothing before it is connected, and afterwards."""


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
    """Run until the sweep is finished or drained.

    Once `stop` is set, running trials are saved at their next report, as stopped. `on_change` is called
    after everything that is recorded; `check` often, and what it raises ends the run at once, as does a
    KeyboardInterrupt; `warn` with what people should know. `needs` is what every node of the cluster at
    `address` is asked for before it gets trials. What Ray says of itself goes to `log`.

    Raises InputError if there is no such cluster, or if a trial fits on none of its nodes; ExecutorError if
    Ray cannot be started, or ended and is not ours to start, or ended too often.
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
    session = Session(recorder, lambda: 0, stop or threading.Event())
    session.changed = on_change or session.changed
    session.check = check or session.check
    session.tell = warn or session.tell
    session.silence_s, session.clock = silence_limit(resources), OwnTime()
    begin = Begin(orders, resources, address, num_cpus, needs)
    restarts = _Restarts(address, log)
    while (died := _run_once(session, begin, log)) is not None:
        session.all_lost(f"Ray ended: {died}")
        if session.recorder.draining:
            return
        session.tell(restarts.allow(died))


@dataclass
class _Restarts:
    """How often Ray ended lately."""

    address: str | None
    log: Path | None
    ends: deque[float] = field(default_factory=deque)

    def allow(self, died: str) -> str:
        """What to tell when Ray is started again. Raises ExecutorError if it is not."""
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
    """Seconds that this process was awake: a machine that slept, or Ctrl-Z, makes nobody silent."""

    def __init__(self) -> None:
        self._seen, self._passed_s = time.monotonic(), 0.0

    def __call__(self) -> float:
        """To be called often."""
        now = time.monotonic()
        self._passed_s += min(now - self._seen, LONGEST_STEP_S)
        self._seen = now
        return self._passed_s


def _run_once(session: Session, begin: Begin, log: Path | None) -> str | None:
    """Why Ray ended before the session was over, or None."""
    with RayChild(begin, log) as child:
        return _serve(session, child)


def _serve(session: Session, child: RayChild) -> str | None:
    """Answer Ray's driver until the session is over. Why Ray ended before, or None."""
    connected, own_time = False, OwnTime()
    heard_at = own_time()
    while True:
        with undisturbed():
            session.tick()
        if session.recorder.draining and not connected:
            session.give_up()
            return None
        if died := child.died():
            return died
        heard = child.poll(POLL_S)
        now = own_time()
        heard_at = now if heard else heard_at
        if now - heard_at > (HANG_S if connected else BEGIN_S):
            return f"its driver has not answered for {now - heard_at:.0f} s"
        if not heard:
            continue
        with undisturbed():
            message = child.take()
            match message:
                case None:
                    return child.died() or "its driver ended"
                case Over():
                    child.gently = True
                    return None
                case Failed(message, kind):
                    child.gently = True
                    if kind is not None:
                        raise kind(message)
                    return message
                case Connected():
                    connected = True
                    child.connected(message)
                case (name, room, arguments):
                    if room is not None:
                        session.slots = partial(int, room)
                    child.answer(getattr(session, name)(*arguments))
