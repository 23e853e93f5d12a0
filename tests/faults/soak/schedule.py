"""What is killed when: drawn from a seed alone, so that a run can be repeated."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Literal

from tests.support.specs.plans import AT_EVERY_REPORT_S

Tracking = Literal["none", "file", "server"]
When = Literal["start", "steps", "end"]

WEIGHTS: Mapping[str, int] = {
    "worker": 330,
    "launcher": 380,
    "ray-launcher": 50,
    "follower": 50,
    "tracking": 40,
    "postgres": 60,
    "raylet": 35,
    "gcs": 35,
    "ray-driver": 20,
}
"""How many of a thousand kills hit what: cheap ones are many."""
LAUNCHERS = frozenset({"launcher", "ray-launcher"})
SERVERS = frozenset({"tracking", "postgres"})
AT_THE_END = LAUNCHERS | SERVERS | {"follower"}
"""What still has something to do after the last step."""
START_SHARE = 0.25
"""Of launchers: killed while they come up, rather than when trials are under way."""
LONGEST_OUTAGE_S = 2.0


@dataclass(frozen=True)
class Scene:
    """A way to run a sweep, and what can die in it."""

    kinds: Mapping[str, float]
    """Which share of the kills of that kind happens here."""
    kills: int
    """Of one sweep."""
    sleep_s: float
    """Least time a step takes."""
    steps_between: int
    """Most steps, over all trials, from one kill to the next."""
    start_s: float
    """About how long a launcher needs to come up."""
    end_s: float
    """About how long it needs after the last step."""
    ray: bool = False
    postgres: bool = False
    tracking: Tracking = "none"
    checkpoint_s: float = AT_EVERY_REPORT_S

    @property
    def slots(self) -> int:
        """Trials under way at once."""
        return 2 if self.ray else 1

    @property
    def interval(self) -> int:
        """Most steps from one checkpoint of a trial to the next."""
        return max(1, ceil(self.checkpoint_s / self.sleep_s))

    def price(self, kind: str) -> int:
        """Most steps that may have to be taken again for such a death."""
        if kind in {"follower", "tracking"}:
            return 0
        return self.interval * (1 if kind == "worker" else self.slots)


RAY_S = {"start_s": 8.0, "end_s": 3.0}
SCENES: Mapping[str, Scene] = {
    "inline": Scene({"launcher": 0.8}, 50, sleep_s=0.005, steps_between=6, start_s=0.4, end_s=0.03),
    "stores": Scene(
        {"launcher": 0.2, "postgres": 0.6, "tracking": 0.6, "follower": 0.6},
        24,
        postgres=True,
        tracking="server",
        sleep_s=0.02,
        checkpoint_s=0.1,
        steps_between=20,
        start_s=2.0,
        end_s=2.0,
    ),
    "ray": Scene(
        {"worker": 0.7, "ray-launcher": 0.6, "raylet": 1, "gcs": 1, "ray-driver": 1, "follower": 0.4},
        60,
        ray=True,
        tracking="file",
        sleep_s=0.03,
        steps_between=16,
        **RAY_S,
    ),
    "team": Scene(
        {"worker": 0.3, "ray-launcher": 0.4, "postgres": 0.4, "tracking": 0.4},
        40,
        ray=True,
        postgres=True,
        tracking="server",
        sleep_s=0.015,
        checkpoint_s=0.15,
        steps_between=24,
        **RAY_S,
    ),
}


@dataclass(frozen=True)
class Kill:
    """One death: whose, and when."""

    kind: str
    when: When
    """`start`: from that of the launcher; `steps`: from the last kill; `end`: from the last step of all."""
    steps: int
    """How many more steps are waited for, over all trials."""
    delay_s: float
    """And how long after them."""
    outage_s: float
    """How long a server stays away."""


@dataclass(frozen=True)
class Round:
    """One sweep from its launch to its end, with the kills on the way."""

    number: int
    scene: str
    kills: tuple[Kill, ...]


def draw(total: int, seed: int, kinds: Collection[str] = tuple(WEIGHTS)) -> list[Round]:
    """`total` kills of `kinds`, by their weights. The same arguments give the same rounds."""
    counts = shared(total, {kind: WEIGHTS[kind] for kind in WEIGHTS if kind in kinds})
    stream = Random(seed)
    parts: list[tuple[str, list[str]]] = []
    for name, kinds_here in _by_scene(counts).items():
        stream.shuffle(kinds_here)
        number = ceil(len(kinds_here) / SCENES[name].kills)
        parts += [(name, kinds_here[at::number]) for at in range(number)]
    stream.shuffle(parts)
    return [
        Round(number, name, _moments(stream, SCENES[name], part)) for number, (name, part) in enumerate(parts)
    ]


def again(number: int, scene: str, kinds: list[str], seed: int) -> Round:
    """A round for kills that a sweep was over too soon for; none of them after the last step."""
    stream = Random(f"{seed}/{number}")
    return Round(number, scene, tuple(_moment(stream, SCENES[scene], kind) for kind in kinds))


def shared(total: int, weights: Mapping[str, float]) -> Counter[str]:
    """`total` divided by `weights`, rounded so that it adds up."""
    whole = sum(weights.values())
    exact = {name: total * weight / whole for name, weight in weights.items()}
    found = Counter({name: int(value) for name, value in exact.items()})
    left = sorted(exact, key=lambda name: found[name] - exact[name])
    found.update(left[: total - found.total()])
    return found


def _by_scene(counts: Mapping[str, int]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind, count in counts.items():
        shares = {name: scene.kinds[kind] for name, scene in SCENES.items() if kind in scene.kinds}
        for name, part in shared(count, shares).items():
            found.setdefault(name, []).extend([kind] * part)
    return {name: kinds for name, kinds in found.items() if kinds}


def _moments(stream: Random, scene: Scene, kinds: list[str]) -> tuple[Kill, ...]:
    """When each of `kinds` dies: some launchers while they come up, one after the last step."""
    early = [kind for kind in kinds if kind in LAUNCHERS and stream.random() < START_SHARE]
    kinds = list((Counter(kinds) - Counter(early)).elements())
    stream.shuffle(kinds)
    late = next((kind for kind in kinds if kind in AT_THE_END), None)
    kills = []
    if late is not None:
        kinds.remove(late)
        kills.append(Kill(late, "end", 0, stream.uniform(0, scene.end_s), _outage(stream, late)))
    kills = [_moment(stream, scene, kind) for kind in kinds] + kills
    for kind in early:
        starts = [0, *(at for at, kill in enumerate(kills, start=1) if kill.kind in LAUNCHERS)]
        kills.insert(stream.choice(starts), Kill(kind, "start", 0, stream.uniform(0, scene.start_s), 0.0))
    return tuple(kills)


def _moment(stream: Random, scene: Scene, kind: str) -> Kill:
    steps = stream.randint(1, scene.steps_between)
    return Kill(kind, "steps", steps, stream.uniform(0, 4 * scene.sleep_s), _outage(stream, kind))


def _outage(stream: Random, kind: str) -> float:
    return stream.uniform(0, LONGEST_OUTAGE_S) if kind in SERVERS else 0.0
