"""A sweep that runs while things around it die: launchers, servers, and how far the trials are."""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.faults.soak import processes
from tests.faults.soak.processes import Launcher
from tests.faults.soak.schedule import LAUNCHERS, SCENES, SERVERS, Kill
from tests.faults.soak.sweep import FINISH, Told
from tests.support.mlflow.mlflow_server import Server
from tests.support.processes.process_lookup import WORKERS, named, running_module
from tests.support.stores.postgres import Postgres
from tests.support.sweeps.workloads import HOLD

SILENT_S = 300.0
"""A sweep that does not go on for so long does not go on."""
TRIES = 6
"""Sessions in a row that ended by themselves without a step."""
MODULES = {
    "follower": "orchestrator.tracking.follower",
    "ray-driver": "orchestrator.execution.ray.driver_main",
}
NAMES = {"worker": WORKERS, "raylet": "raylet", "gcs": "gcs_server"}


class Steps:
    """The steps that trials have taken, as they tell themselves in a file."""

    def __init__(self, file: Path) -> None:
        self._file, self._read = file, 0
        self.taken: Counter[str] = Counter()

    def count(self) -> int:
        """How many, those taken again included."""
        if self._file.exists():
            with self._file.open("rb") as stream:
                stream.seek(self._read)
                whole = stream.read().rpartition(b"\n")[0]
            if whole:
                self._read += len(whole) + 1
                self.taken.update(whole.decode().split("\n"))
        return self.taken.total()

    @property
    def redone(self) -> int:
        """How many were taken again."""
        return self.taken.total() - len(self.taken)


class Stage:
    """A sweep below `root`, with its servers and launchers."""

    def __init__(
        self, root: Path, temporary: Path, shown: Told, servers: Mapping[str, Server | Postgres]
    ) -> None:
        self._root, self._temporary = root, temporary
        self._scene = SCENES[shown.scene]
        self._poll_s = self._scene.sleep_s / 2
        self._servers = servers
        self._away: dict[str, threading.Thread] = {}
        self._launcher: Launcher | None = None
        self._last = "nothing"
        self._ours = False
        self._empty = 0
        self._moved_at = time.monotonic()
        self._seen = -1
        self.steps = Steps(root / "data" / "steps.txt")
        self.ended: Counter[str] = Counter()
        self.endings: list[str] = []
        self.other: list[str] = []
        self.redone: Counter[str] = Counter()
        self._redone = 0

    @property
    def finished(self) -> bool:
        """Whether a session has run to the end of the sweep."""
        return (self._root / FINISH).exists()

    def goes_on(self) -> bool:
        """Have a session running, a new one if need be; False if the sweep is over, or cannot go on."""
        self._watch()
        if self._launcher is not None and self._launcher.running:
            return True
        if self.finished or self._empty >= TRIES:
            return False
        if self._launcher is not None and not self._ours:
            self.ended[self._last] += 1
            self.endings.append(f"after {self._last}, code {self._launcher.code}: {self._launcher.said()}")
            self._empty += 1
            if self._empty == TRIES:
                self.other.append(f"{TRIES} sessions in a row ended without a step after {self._last} died")
                return False
            # As people would: resumed when what was away is there again.
            for kind in list(self._away):
                self._back(kind)
        self._ours = False
        self._moved_at = time.monotonic()
        self._launcher = Launcher(self._root, self._temporary)
        return True

    def _watch(self) -> None:
        """Notice steps, and that there are none."""
        count = self.steps.count()
        if count != self._seen:
            self._seen, self._empty, self._moved_at = count, 0, time.monotonic()
        if (
            time.monotonic() - self._moved_at > SILENT_S
            and self._launcher is not None
            and self._launcher.running
        ):
            self.other.append(f"nothing happened for {SILENT_S:.0f} s after {self._last} died")
            self._launcher.kill()
            self._empty += 1

    def reach(self, kill: Kill, whole: int) -> bool:
        """Wait for the moment of a kill; False if the sweep is over before."""
        if not self.goes_on():
            return False
        begun = self.steps.count()
        assert self._launcher is not None
        if kill.when == "start":
            _sleep_until(self._launcher.started_at + kill.delay_s)
            return True
        while self.goes_on():
            done = len(self.steps.taken) >= whole
            if done or (kill.when == "steps" and self.steps.count() >= begun + kill.steps):
                time.sleep(kill.delay_s)
                return True
            time.sleep(self._poll_s)
        return False

    def strike(self, kill: Kill) -> int | None:
        """Kill it; its process id, None if the sweep is over before there is one."""
        while self.goes_on():
            self._back(kill.kind)
            pid = self._hit(kill)
            if pid is not None:
                self._attribute(kill.kind)
                return pid
            time.sleep(self._poll_s)
        return None

    def _hit(self, kill: Kill) -> int | None:
        assert self._launcher is not None
        if kill.kind in LAUNCHERS:
            if not self._launcher.running:
                return None
            self._ours = True
            self._launcher.kill()
            return self._launcher.pid
        if kill.kind in SERVERS:
            server = self._servers[kill.kind]
            pid = server.pid
            server.kill()
            self._away[kill.kind] = threading.Thread(target=_restart, args=(server, kill.outage_s))
            self._away[kill.kind].start()
            return pid
        for process in self._targets(kill.kind):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
            return process.pid
        return None

    def _targets(self, kind: str) -> list[psutil.Process]:
        assert self._launcher is not None
        family = self._launcher.family()
        if kind in MODULES:
            return running_module(family, MODULES[kind])
        return named(family, NAMES[kind])

    def _back(self, kind: str) -> None:
        """Wait until a server is there again."""
        if kind in self._away:
            # The sweep must not be over before.
            hold = self._root / "data" / HOLD
            hold.parent.mkdir(exist_ok=True)
            hold.touch()
            self._away.pop(kind).join()
            hold.unlink()

    def to_the_end(self) -> None:
        """No more kills."""
        while self.goes_on():
            time.sleep(10 * self._poll_s)
        for kind in list(self._away):
            self._back(kind)
        self._attribute("nothing")

    def _attribute(self, next_kind: str) -> None:
        """Steps taken again since the last kill are its price."""
        self.steps.count()
        self.redone[self._last] += self.steps.redone - self._redone
        self._redone, self._last = self.steps.redone, next_kind

    def end(self) -> None:
        """Whatever happened: nothing of ours is left running."""
        if self._launcher is not None:
            family = self._launcher.family()
            self._launcher.kill()
            for process in [*family, *processes.marked(self._root)]:
                process.kill()
        for kind in list(self._away):
            self._back(kind)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _restart(server: Server | Postgres, outage_s: float) -> None:
    time.sleep(outage_s)
    server.start()
