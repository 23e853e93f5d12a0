"""Run Ray and Tune in the driver process, which `RayDriver` starts with a descriptor and a temporary folder.

The process makes no decisions and stores nothing. It forwards calls of Tune's hooks to the session in the
launching process.
"""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from orchestrator.errors import HaltsweepError
from orchestrator.execution.ray.driver import DriverEnd, DriverOrder
from orchestrator.execution.session import Session

PARENT_CHECK_S = 0.2


def main() -> None:
    """Run the order of the launching process and send the result."""
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    connection: Connection = Connection(int(sys.argv[1]))
    driver_end = _run_until_end(_connect, connection, connection.recv(), Path(sys.argv[2]))
    if driver_end.error:
        connection.send(driver_end)


def _run_until_end(function: Callable[..., None], *arguments: Any) -> DriverEnd:
    """Call a function and return the last message of the driver, with the error if the function failed."""
    try:
        function(*arguments)
    except (EOFError, BrokenPipeError):
        os._exit(1)  # the launching process has ended
    except HaltsweepError as error:
        return DriverEnd(str(error), type(error))
    except Exception as error:  # Ray raises exceptions of many classes
        traceback.print_exc()
        return DriverEnd(f"{type(error).__name__}: {error}")
    return DriverEnd()


def _connect(connection: Connection, order: DriverOrder, scratch: Path) -> None:
    from orchestrator.execution.ray.cluster import connect

    with connect(order, scratch):
        # Sent before Ray shuts down, since the launching process watches Ray's servers.
        connection.send(_run_until_end(_run_order, connection, order, scratch))


def _run_order(connection: Connection, order: DriverOrder, scratch: Path) -> None:
    from orchestrator.execution.ray.cluster import slot_counter
    from orchestrator.execution.ray.nodes import Nodes
    from orchestrator.execution.ray.tune import run_session

    if order.orders is None:
        assert order.needs is not None, "nodes are checked for requirements"
        Nodes(order.needs, order.resources).require_fit()
        return
    session = cast("Session", _RemoteSession(connection))
    nodes = Nodes(order.needs, order.resources, session.warn) if order.needs is not None else None
    run_session(session, order.orders, scratch, slot_counter(order.resources, nodes), nodes)


@dataclass(frozen=True, slots=True)
class _RemoteSession:
    """Proxy that forwards method calls to the session of the launching process."""

    connection: Connection

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.connection.send((method, arguments))
            return self.connection.recv()

        return call


def _exit_with_parent(parent: int) -> None:
    """Exit this process, and with it Ray, after the launching process was killed."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


if __name__ == "__main__":
    main()
