"""Studies of arms that are tuned: how often arms without any difference are decided, by how searches are run.

An arm's score at x in [0, 1] is a parabola around its optimum, plus noise that arms with the same training
seed share in part. A search draws points, scores each once, and keeps the best; what it kept is then scored
with fresh noise. `python -m tests.orchestrator.statistics.tuned_arms` prints rates of decisions by design.
Some designs are there for comparison alone: the product does not offer them.
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
    same_points: bool = False
    """Whether one search draws the same points in all arms; repeated searches do in any case."""
    finalists: int = 1
    """So many of the best points are scored again, with the noise of `CHOICE_SEEDS` seeds, to choose one."""
    crossed: bool = False
    """Whether each arm is scored at its own point and at the baseline's, and the baseline at both."""

    @property
    def runs(self) -> int:
        """Trained models of an arm."""
        again = CHOICE_SEEDS * self.finalists if self.finalists > 1 else 0
        return self.repeats * (self.trials + again + self.seeds * (2 if self.crossed else 1))


CHOICE_SEEDS = 3
ONE_SEARCH = Design(1, 12, 8)
REPEATED = Design(8, 3, 1)
FEWEST = Design(3, 3, 1)
SEVERAL_SEEDS = Design(4, 3, 2)
ARMS = (1, 4, 12)
DESIGNS = {
    "one search, 12 trials, 8 seeds": ONE_SEARCH,
    "the same, best 4 points scored again on 3 seeds": Design(1, 12, 8, finalists=4),
    "the same, same points in all arms": Design(1, 12, 8, same_points=True),
    "the same, both arms at both winners": Design(1, 12, 8, crossed=True),
    "3 searches of 3 trials, one seed each": FEWEST,
    "4 searches of 3 trials, two seeds each": SEVERAL_SEEDS,
    "6 searches of 3 trials, one seed each": Design(6, 3, 1),
    "8 searches of 3 trials, one seed each": REPEATED,
    "8 searches of 12 trials, one seed each": Design(8, 12, 1),
}


def decided(surface: Surface, design: Design, arms: int, effect: float, rng: np.random.Generator) -> int:
    """Return how many of `arms` a study decides; `effect` is added to their scores."""
    chosen = _chosen(surface, design, arms, rng)
    scores, baseline = _confirmed(surface, design, chosen, rng)
    cells = [*product(range(design.repeats), range(design.seeds))]
    units = {place: repeat if design.repeats > 1 else place for place, (repeat, _) in enumerate(cells)}
    differences = {
        (f"arm-{arm}", "score"): by_unit(
            {
                place: float(effect + scores[arm][cell] - baseline[arm][cell])
                for place, cell in enumerate(cells)
            },
            units,
        )
        for arm in range(1, arms + 1)
    }
    found = compare(differences, family=arms)
    return sum(verdict(each, better="max").kind != "undecided" for each in found.values())


def _chosen(surface: Surface, design: Design, arms: int, rng: np.random.Generator) -> Values:
    """Return the point that each repeat of each arm's search keeps."""
    shape = (arms + 1, design.repeats, design.trials)
    points = rng.uniform(size=shape)
    if design.repeats > 1 or design.same_points:
        points = np.broadcast_to(points[:1], shape)
    optima = _optima(surface, arms)
    scores = _noise(shape, rng) - surface.steepness * (points - optima) ** 2
    if design.finalists > 1:
        best = np.argsort(-scores, axis=-1)[..., : design.finalists]
        points = np.take_along_axis(points, best, axis=-1)
        again = _noise((CHOICE_SEEDS, *points.shape), rng, axis=1).mean(axis=0)
        scores = again - surface.steepness * (points - optima) ** 2
    return np.take_along_axis(points, np.argmax(scores, axis=-1)[..., None], axis=-1)[..., 0]


def _confirmed(
    surface: Surface, design: Design, chosen: Values, rng: np.random.Generator
) -> tuple[Values, Values]:
    """Return the scores of all arms, and beside each the baseline's that it is compared with."""
    shape = (*chosen.shape, design.seeds)
    common = rng.normal(size=(1, *shape[1:]))

    def scores(points: Values, optima: Values) -> Values:
        noise = NOISE * (np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * rng.normal(size=shape))
        return noise - surface.steepness * (points[..., None] - optima) ** 2

    optima = _optima(surface, len(chosen) - 1)
    own = scores(chosen, optima)
    if not design.crossed:
        return own, np.broadcast_to(own[:1], shape)
    at_baselines = scores(np.broadcast_to(chosen[:1], chosen.shape), optima)
    return (own + at_baselines) / 2, (own[:1] + scores(chosen, optima[:1])) / 2


def _optima(surface: Surface, arms: int) -> Values:
    return np.array([surface.optimum, *[surface.optimum_of_arms] * arms])[:, None, None]


def _noise(shape: tuple[int, ...], rng: np.random.Generator, axis: int = 0) -> Values:
    """Return noise that is shared in part along `axis`, which counts arms."""
    common = rng.normal(size=(*shape[:axis], 1, *shape[axis + 1 :]))
    return NOISE * (np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * rng.normal(size=shape))


def rate(surface: Surface, design: Design, arms: int, effect: float = 0.0) -> float:
    """Return the share of studies that decide anything."""
    rng = np.random.default_rng([design.repeats, design.trials, design.seeds, arms])
    return sum(decided(surface, design, arms, effect, rng) > 0 for _ in range(STUDIES)) / STUDIES


def table() -> Iterator[str]:
    """Yield a Markdown table: rates of decisions without an effect, and with one of two deviations."""
    columns = [*product(SURFACES, ARMS)]
    yield f"| design | runs an arm | {' | '.join(f'{name}, {arms}' for name, arms in columns)} |"
    yield "|---" * (2 + len(columns)) + "|"
    for name, design in DESIGNS.items():
        rates = (
            [rate(SURFACES[surface], design, arms, effect) for effect in (0.0, 2.0 * NOISE)]
            for surface, arms in columns
        )
        yield f"| {name} | {design.runs} | {' | '.join('{:.2f} / {:.2f}'.format(*rate) for rate in rates)} |"


if __name__ == "__main__":
    for line in table():
        print(line, flush=True)
