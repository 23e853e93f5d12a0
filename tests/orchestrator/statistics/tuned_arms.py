"""Studies of arms that are tuned: how often arms without any difference are decided, by how searches are run.

An arm's score at x in [0, 1] is a parabola around its optimum, plus noise that arms with the same training
seed share in part. A search draws points, scores each once, and keeps the best; what it kept is then scored
with fresh noise. `python -m tests.orchestrator.statistics.tuned_arms` prints rates of decisions by design.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.paired import by_unit, compare
from orchestrator.statistics.verdicts import verdict

Values = NDArray[np.float64]
STUDIES = 400
NOISE = 1.0
"""Standard deviation of a score over training seeds."""
SHARED = 0.5
"""Part of the variance of noise that arms with one training seed share."""


@dataclass(frozen=True)
class Surface:
    """How the score depends on what is searched."""

    steepness: float
    optimum: float
    optimum_of_arms: float
    """The mirror image of `optimum`, or the same: what a search reaches has one distribution in all arms."""


SURFACES = {
    "flat": Surface(1.0, 0.5, 0.5),
    "steep": Surface(40.0, 0.5, 0.5),
    "moved optimum": Surface(20.0, 0.3, 0.7),
}


@dataclass(frozen=True)
class Design:
    """How every arm is searched and confirmed."""

    repeats: int
    trials: int
    """Of each search."""
    seeds: int
    """Confirm seeds of each repeat."""


ONE_SEARCH = Design(1, 12, 8)
REPEATED = Design(8, 3, 1)
FEWEST = Design(3, 3, 1)
SEVERAL_SEEDS = Design(4, 3, 2)


def decided(surface: Surface, design: Design, arms: int, effect: float, rng: np.random.Generator) -> int:
    """Return how many of `arms` a study decides; `effect` is added to their scores."""
    chosen = _chosen(surface, design, arms, rng)
    noise = _noise((arms + 1, design.repeats, design.seeds), rng)
    optima = np.array([surface.optimum, *[surface.optimum_of_arms] * arms])[:, None, None]
    scores = noise - surface.steepness * (chosen[..., None] - optima) ** 2
    scores[1:] += effect
    cells = [*product(range(design.repeats), range(design.seeds))]
    units = {place: repeat if design.repeats > 1 else place for place, (repeat, _) in enumerate(cells)}
    differences = {
        (f"arm-{arm}", "score"): by_unit(
            {place: float(scores[arm][cell] - scores[0][cell]) for place, cell in enumerate(cells)}, units
        )
        for arm in range(1, arms + 1)
    }
    found = compare(differences, family=arms)
    return sum(verdict(each, better="max").kind != "undecided" for each in found.values())


def _chosen(surface: Surface, design: Design, arms: int, rng: np.random.Generator) -> Values:
    """What each repeat of each arm's search keeps: repeats draw alike in all arms, one search does not."""
    shape = (arms + 1, design.repeats, design.trials)
    points = rng.uniform(size=shape)
    if design.repeats > 1:
        points = np.broadcast_to(points[:1], shape)
    optima = np.array([surface.optimum, *[surface.optimum_of_arms] * arms])[:, None, None]
    scores = _noise(shape, rng) - surface.steepness * (points - optima) ** 2
    best = np.argmax(scores, axis=-1)
    return np.take_along_axis(points, best[..., None], axis=-1)[..., 0]


def _noise(shape: tuple[int, ...], rng: np.random.Generator) -> Values:
    common = rng.normal(size=(1, *shape[1:]))
    return NOISE * (np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * rng.normal(size=shape))


def rate(surface: Surface, design: Design, arms: int, effect: float = 0.0) -> float:
    """Share of studies that decide anything."""
    rng = np.random.default_rng([design.repeats, design.trials, design.seeds, arms])
    return sum(decided(surface, design, arms, effect, rng) > 0 for _ in range(STUDIES)) / STUDIES


def table() -> Iterator[str]:
    """A line a surface and design: rates of decisions without an effect and with one of two deviations."""
    for (name, surface), design, arms in product(
        SURFACES.items(), (ONE_SEARCH, FEWEST, SEVERAL_SEEDS, REPEATED), (1, 4, 12)
    ):
        null, found = (rate(surface, design, arms, effect) for effect in (0.0, 2.0 * NOISE))
        yield f"{name}, {design}, {arms} arms: {null:.3f} without an effect, {found:.3f} with one"


if __name__ == "__main__":
    for line in table():
        print(line)
