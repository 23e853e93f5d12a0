"""Run Ray and Tune in the driver process, which `RayDriver` starts with a descriptor and a temporary folder.

The process makes no decisions and stores nothing. It forwards calls of Tune's hooks to the session in the
launching process.
"""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from orchestrator.conductor.messages import Reply, Stop
from orchestrator.errors import HaltsweepError
from orchestrator.execution.ray.driver import DriverEnded, DriverOrder
from orchestrator.execution.session import NoAttempt, Turn
from orchestrator.execution.trial.jobs import Attempt
from orchestrator.trials import DeathCause

PARENT_CHECK_S = 0.2


def main() -> None:
    """Run the order of the launching process and send the result."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    connection: Connection = Connection(int(sys.argv[1]))
    ended = _end_of(_connect, connection, connection.recv(), Path(sys.argv[2]))
    if ended.error:
        connection.send(ended)


def _end_of(function: Callable[..., None], *arguments: Any) -> DriverEnded:
    """Call a function and return its result as the end of the driver."""
    try:
        function(*arguments)
    except (EOFError, BrokenPipeError):
        os._exit(1)  # the launching process has ended
    except HaltsweepError as error:
        return DriverEnded(str(error), type(error))
    except Exception as error:  # Ray raises exceptions of many classes
        traceback.print_exc()
        return DriverEnded(f"{type(error).__name__}: {error}")
    return DriverEnded()


def _connect(connection: Connection, order: DriverOrder, scratch: Path) -> None:
    from orchestrator.execution.ray.cluster import connect

    with connect(order, scratch):
        # Sent before Ray shuts down, since the launching process watches Ray's servers.
        connection.send(_end_of(_run, connection, order, scratch))


def _run(connection: Connection, order: DriverOrder, scratch: Path) -> None:
    from orchestrator.execution.ray.cluster import slot_counter
    from orchestrator.execution.ray.nodes import Nodes
    from orchestrator.execution.ray.tune import run_session

    if order.orders is None:
        assert order.needs is not None, "nodes are checked for requirements"
        Nodes(order.needs, order.resources).require_fit()
        return
    remote = _RemoteSession(connection)
    nodes = Nodes(order.needs, order.resources, remote.tell) if order.needs is not None else None
    run_session(remote, order.orders, scratch, slot_counter(order.resources, nodes), nodes)


@dataclass(frozen=True, slots=True)
class _RemoteSession:
    """Proxy for the session of the launching process."""

    connection: Connection

    def offer(self, key: str, num_slots: int) -> Attempt | NoAttempt:
        answer: Attempt | NoAttempt = self._call("offer", key, num_slots)
        return answer

    def reported(self, key: str, replies: Iterable[Reply]) -> tuple[Stop | None, bool]:
        answer: tuple[Stop | None, bool] = self._call("reported", key, list(replies))
        return answer

    def tell(self, text: str) -> None:
        self._call("tell", text)

    def turn(self, begun: Sequence[str]) -> Turn:
        answer: Turn = self._call("turn", begun)
        return answer

    def lost(self, key: str, reason: str, cause: DeathCause) -> None:
        self._call("lost", key, reason, cause)

    def refused(self, key: str) -> None:
        self._call("refused", key)

    def give_up(self) -> None:
        self._call("give_up")

    def _call(self, name: str, *arguments: Any) -> Any:
        self.connection.send((name, arguments))
        return self.connection.recv()


def _end_with(parent: int) -> None:
    """Exit this process, and with it Ray, after the launching process was killed."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


if __name__ == "__main__":
    main()
