"""One round: a sweep is launched, killed as was drawn, resumed to its end, and audited."""

import json
import shutil
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from orchestrator.ledger.store import Ledger
from orchestrator.tracking.mlflow.mlflow_runs import RunStore
from orchestrator.tracking.sync import sync
from tests.faults.kills.chaos import Place, go
from tests.faults.soak import audit, processes
from tests.faults.soak.schedule import SCENES, Round
from tests.faults.soak.stage import Stage
from tests.faults.soak.sweep import FINISH, Told, plan, trials_for
from tests.faults.soak.truth import Rows, Truth, read_postgres, read_sqlite, truths
from tests.support.mlflow.mlflow_server import Server
from tests.support.processes.forks import forks
from tests.support.processes.process_lookup import AGENTS, named
from tests.support.processes.temporary import short_folder
from tests.support.stores.postgres import Postgres, postgres

MLFLOW = "mlflow.db"
END_S = 60.0
"""In which everything must be gone that a sweep has started, once its launcher has ended."""
Note = Callable[[Mapping[str, Any]], None]


@dataclass
class Result:
    """What came of a round."""

    number: int
    scene: str
    kills: int
    """How many were drawn."""
    seconds: float = 0.0
    killed: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    """Kills for which the sweep was over too soon, or could not begin."""
    ended: Counter[str] = field(default_factory=Counter)
    """Sessions that ended by themselves before the sweep did, by what was killed last."""
    endings: list[str] = field(default_factory=list)
    """What they said at last."""
    untracked: int = 0
    """1 if MLflow lacked something at the end, so that `sync` had to catch up."""
    trials: int = 0
    steps: int = 0
    redone: Counter[str] = field(default_factory=Counter)
    """Steps taken again, by what was killed before."""
    allowed: Counter[str] = field(default_factory=Counter)
    """How many they may be: one checkpoint interval of every trial that died with it."""
    found: dict[str, list[str]] = field(default_factory=dict)
    """By sort; all empty if all is well."""

    @classmethod
    def read(cls, shown: Mapping[str, Any]) -> "Result":
        """From the log."""
        counters = {name: Counter(shown[name]) for name in ("killed", "ended", "redone", "allowed")}
        return cls(**{**shown, **counters})

    def __str__(self) -> str:
        faults = {sort: len(lines) for sort, lines in self.found.items() if lines}
        return (
            f"round {self.number} {self.scene}: {self.killed.total()} kills {dict(self.killed)}, "
            f"{len(self.missed)} missed, {self.redone.total()} of {self.steps} steps redone "
            f"(at most {self.allowed.total()}), {dict(self.ended)} ended, {self.seconds:.0f} s, "
            f"{faults or 'all is well'}"
        )


class Rounds:
    """Runs rounds below `folder`; safe for threads."""

    def __init__(self, folder: Path, note: Note) -> None:
        self._folder, self._note = folder, note
        self._lock = threading.Lock()
        self._truths: dict[tuple[str, int], dict[str, Truth]] = {}
        self._agents: list[psutil.Process] = []

    def run(self, drawn: Round) -> Result:
        """From the launch to the audit. The folder is deleted if all is well."""
        began = time.monotonic()
        root = self._folder / f"round-{drawn.number:03d}"
        shutil.rmtree(root, ignore_errors=True)
        result = Result(drawn.number, drawn.scene, len(drawn.kills))
        found = audit.Found()
        with ExitStack() as stack:
            temporary = stack.enter_context(short_folder())
            servers: dict[str, Server | Postgres] = {}
            try:
                shown = self._told(drawn, root, servers, stack)
                truth = self._truth(drawn.scene, shown.trials_per_arm)
                self._play(drawn, Stage(root, temporary, shown, servers), truth, result, found)
                self._audit(root, shown, truth, result, found)
            except Exception:  # this round is spoilt, the others are not
                found.other.append(traceback.format_exc(limit=-3))
            self._look_for_leftovers(root, temporary, found)
        drawn_kinds = Counter(kill.kind for kill in drawn.kills)
        result.missed = list((drawn_kinds - result.killed).elements())
        result.found = asdict(found)
        result.seconds = time.monotonic() - began
        if not any(result.found.values()):
            shutil.rmtree(root)
        return result

    def lingering(self) -> list[str]:
        """Ray's agents that have not ended in time; to be asked at the very end."""
        _, alive = psutil.wait_procs(self._agents, timeout=2 * END_S)
        return [f"process {each.pid} {each.name()}" for each in alive]

    def _told(
        self, drawn: Round, root: Path, servers: dict[str, Server | Postgres], stack: ExitStack
    ) -> Told:
        scene = SCENES[drawn.scene]
        root.mkdir(parents=True)
        self._copy_mlflow(root / MLFLOW)
        storage = tracking = None
        if scene.postgres:
            database = stack.enter_context(postgres())
            servers["postgres"] = database
            storage = database.url()
        if scene.tracking == "server":
            server = Server(root / MLFLOW, root / "served")
            stack.callback(server.stop)
            server.start()
            servers["tracking"] = server
            tracking = server.uri
        elif scene.tracking == "file":
            tracking = f"sqlite:///{root / MLFLOW}"
        trials = trials_for(scene, len(drawn.kills))
        shown = Told(drawn.scene, f"soak-{drawn.number:03d}", trials, storage, tracking)
        shown.write(root)
        return shown

    def _copy_mlflow(self, file: Path) -> None:
        """Making MLflow's tables takes longer than a round: they are made once."""
        empty = self._folder / "empty.db"
        with self._lock:
            if not empty.exists():
                process = forks.Process(target=_make_mlflow, args=(empty,))
                process.start()
                process.join()
                assert process.exitcode == 0, "MLflow's tables must be made"
        shutil.copy(empty, file)

    def _truth(self, scene: str, trials_per_arm: int) -> dict[str, Truth]:
        with self._lock:
            key = (scene, trials_per_arm)
            if key not in self._truths:
                whole = plan(SCENES[scene], "undisturbed", trials_per_arm)
                root = self._folder / f"undisturbed-{scene}-{trials_per_arm}"
                shutil.rmtree(root, ignore_errors=True)
                place = Place(root, whole)
                process = forks.Process(target=_undisturbed, args=(place,))
                process.start()
                process.join()
                assert process.exitcode == 0, "a sweep that nobody disturbs must come to its end"
                self._truths[key] = truths(whole, read_sqlite(place.folder.ledger, "undisturbed"))
            return self._truths[key]

    def _play(
        self, drawn: Round, stage: Stage, truth: Mapping[str, Truth], result: Result, found: audit.Found
    ) -> None:
        whole = sum(len(trial.measured) for trial in truth.values())
        began = time.monotonic()
        try:
            for number, kill in enumerate(drawn.kills):
                pid = stage.strike(kill) if stage.reach(kill, whole) else None
                if pid is None:
                    continue
                result.killed[kill.kind] += 1
                at_s = time.monotonic() - began
                self._note(
                    {"round": drawn.number, "kill": number, "pid": pid, "at_s": round(at_s, 3)}
                    | {"steps_taken": stage.steps.count()}
                    | asdict(kill)
                )
            stage.to_the_end()
        finally:
            stage.end()
        scene = SCENES[drawn.scene]
        result.steps, result.redone, result.ended = stage.steps.count(), stage.redone, stage.ended
        result.allowed = Counter({kind: n * scene.price(kind) for kind, n in result.killed.items()})
        result.trials, result.endings = len(truth), stage.endings
        found.other += stage.other
        redone, allowed = result.redone.total(), result.allowed.total()
        if redone > allowed:
            found.other.append(f"{redone} steps were taken again, at most {allowed} may be")

    def _audit(
        self, root: Path, shown: Told, truth: Mapping[str, Truth], result: Result, found: audit.Found
    ) -> None:
        place = shown.place(root)
        audit.audit_ledger(_rows(place, shown), truth, found)
        finish = json.loads((root / FINISH).read_text())
        if finish["left"] or finish["code"]:
            found.other.append(f"the last session told of {finish}")
        if shown.tracking_uri is None or finish["untracked"]:
            result.untracked = int(shown.tracking_uri is not None)
            process = forks.Process(target=_sync, args=(root, shown))
            process.start()
            process.join()
            if process.exitcode:
                found.other.append(f"sync ended with {process.exitcode}")
        audit.audit_parquet(place.folder.root, truth, found)
        audit.audit_mlflow(root / MLFLOW, shown.sweep, truth, found)
        kept = {each.trial_id for each in place.plan.trials if each.phase == "confirm"}
        audit.audit_disk(root, place.folder.root, truth, kept, found)

    def _look_for_leftovers(self, root: Path, temporary: Path, found: audit.Found) -> None:
        alive = processes.marked(root)
        agents = named(alive, *AGENTS)
        _, alive = psutil.wait_procs([each for each in alive if each not in agents], timeout=END_S)
        for process in alive:
            found.leftover.append(f"process {process.pid} {process.name()}")
            process.kill()
        with self._lock:
            self._agents += agents
        found.leftover += [f"temporary {path.name}" for path in sorted(temporary.iterdir())]


def _rows(place: Place, shown: Told) -> Rows:
    if shown.storage is not None:
        return read_postgres(shown.storage, shown.sweep)
    return read_sqlite(place.folder.ledger, shown.sweep)


def _make_mlflow(file: Path) -> None:
    fresh = file.with_suffix(".new")
    RunStore(f"sqlite:///{fresh}", "none", file.parent / "artifacts")
    fresh.rename(file)


def _undisturbed(place: Place) -> None:
    # Truth does not take its time.
    time.sleep = lambda _: None
    place.data.mkdir(parents=True)
    go(place)


def _sync(root: Path, shown: Told) -> None:
    sys.exit(int(catch_up(root, shown) > 0))


def catch_up(root: Path, shown: Told) -> int:
    """As `haltsweep sync` does; how much a second time writes."""
    place = shown.place(root)
    url = shown.storage or place.folder.ledger_url
    uri = shown.tracking_uri or f"sqlite:///{root / MLFLOW}"
    with Ledger.open(url, shown.sweep) as ledger:
        sync(place.folder, ledger, uri)
        return sync(place.folder, ledger, uri).total
