"""All rounds of a run: side by side, logged, continued after a break, topped up where kills were missed."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.soak.rounds import Result, Rounds
from tests.faults.soak.schedule import Round, again, draw

LOG = "log.jsonl"
TOP_UPS = 4
"""How often missed kills are tried again."""
AGAIN = 1000
"""Numbers of such rounds begin here."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What a run is to do."""

    kills: int
    seed: int
    kinds: tuple[str, ...]
    parallel: int
    """Sweeps side by side."""
    rounds: tuple[int, ...] = ()
    """None: all."""


class Log:
    """JSON lines: what was asked, every kill, every round."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

    def note(self, what: Mapping[str, Any]) -> None:
        """One line more."""
        with self._lock, self._file.open("a") as stream:
            print(json.dumps({"at": round(time.time(), 3), **what}), file=stream)

    def results(self, asked: Asked) -> dict[int, Result]:
        """Rounds that are done already, not those that could not begin. Fails for the log of another run."""
        if not self._file.exists():
            self.note({"asked": [asked.kills, asked.seed, list(asked.kinds)]})
        lines = [json.loads(line) for line in self._file.read_text().splitlines()]
        same = lines[0]["asked"] == [asked.kills, asked.seed, list(asked.kinds)]
        assert same, f"{self._file} belongs to another run: {lines[0]['asked']}"
        results = [Result.read(line["result"]) for line in lines if "result" in line]
        return {each.number: each for each in results if each.trials}


def run(asked: Asked, folder: Path, say: Say) -> tuple[list[Result], list[str]]:
    """Everything that is not done yet; all results, and processes that do not end."""
    folder.mkdir(parents=True, exist_ok=True)
    log = Log(folder / LOG)
    done = log.results(asked)
    rounds = Rounds(folder, log.note)

    def play(drawn: Round) -> None:
        result = rounds.run(drawn)
        done[drawn.number] = result
        log.note({"result": vars(result)})
        killed = sum(each.killed.total() for each in done.values())
        say(f"{time.strftime('%H:%M:%S')} {result} ({killed} kills of {asked.kills})")

    with ThreadPoolExecutor(asked.parallel) as pool:
        drawn = draw(asked.kills, asked.seed, asked.kinds)
        wanted = [each for each in drawn if not asked.rounds or each.number in asked.rounds]
        _all(pool, play, [each for each in wanted if each.number not in done])
        for _ in range(0 if asked.rounds else TOP_UPS):
            _all(pool, play, _missed(done.values(), asked.seed))
    return list(done.values()), rounds.lingering()


def _all(pool: ThreadPoolExecutor, play: Callable[[Round], None], rounds: Iterable[Round]) -> None:
    for _ in pool.map(play, rounds):
        pass


def _missed(done: Iterable[Result], seed: int) -> list[Round]:
    """Rounds for the kills that were drawn and not done."""
    wanted: dict[str, list[str]] = {}
    for result in done:
        kinds = wanted.setdefault(result.scene, [])
        if result.number >= AGAIN:  # it was for such a kill
            for kind in result.killed.elements():
                kinds.remove(kind)
        else:
            kinds += result.missed
    first = max([AGAIN, *(result.number + 1 for result in done)])
    rounds = [(scene, kinds) for scene, kinds in wanted.items() if kinds]
    return [again(number, scene, kinds, seed) for number, (scene, kinds) in enumerate(rounds, start=first)]
