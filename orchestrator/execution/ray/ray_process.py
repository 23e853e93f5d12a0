"""The process that Ray and Tune run in, started by `ray_child` with the number of a pipe's descriptor.

It decides and keeps nothing: what Tune's hooks hear is passed on to the session in the launching process.
"""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from orchestrator.conductor.messages import Reply, Stop
from orchestrator.errors import HaltsweepError
from orchestrator.execution.ray.pipe import Begin, Connected, Failed, Over
from orchestrator.execution.session import NoAttempt, Turn
from orchestrator.execution.trial.jobs import Attempt
from orchestrator.trials import DeathCause

ORPHAN_POLL_S = 0.2


def main() -> None:
    """Run what the launching process says, then tell how it went."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    connection: Connection = Connection(int(sys.argv[1]))
    try:
        _run(connection, connection.recv())
    except (EOFError, BrokenPipeError):
        os._exit(1)  # the launching process is gone
    except HaltsweepError as error:
        connection.send(Failed(str(error), type(error)))
    except Exception as error:  # whatever Ray raises
        traceback.print_exc()  # into the log
        connection.send(Failed(f"{type(error).__name__}: {error}"))


def _run(connection: Connection, begin: Begin) -> None:
    from orchestrator.execution.ray.ray_cluster import cluster, head, servers, slot_counter
    from orchestrator.execution.ray.ray_nodes import Nodes
    from orchestrator.execution.ray.ray_tune import run_session

    ours = begin.address is None
    sent = None if begin.needs is None else begin.needs.sent
    with cluster(begin.address, begin.num_cpus, sent) as scratch:
        connection.send(Connected(servers() if ours else {}, None if ours else head(), scratch))
        remote = _Remote(connection)
        nodes = Nodes(begin.needs, begin.resources, remote.tell) if begin.needs is not None else None
        remote.slots = slot_counter(begin.resources, nodes)
        run_session(remote, begin.orders, scratch, nodes)
        connection.send(Over())


@dataclass(slots=True)
class _Remote:
    """The session of the launching process."""

    connection: Connection
    slots: Callable[[], int] = lambda: 0
    """How many trials fit on the cluster at this moment."""

    def offer(self, key: str) -> Attempt | NoAttempt:
        answer: Attempt | NoAttempt = self._call("offer", key, room=self.slots())
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

    def _call(self, name: str, *arguments: Any, room: int | None = None) -> Any:
        self.connection.send((name, room, arguments))
        return self.connection.recv()


def _end_with(parent: int) -> None:
    """A launching process that was killed takes this one along, and with it Ray."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_POLL_S)
    os._exit(1)


if __name__ == "__main__":
    main()
