"""Simulate tuned arms without differences and count false decisions by search design.

    python -m tests.orchestrator.statistics.tuned_arms

The score of an arm at x in [0, 1] is a parabola around its optimum plus noise. Arms with the same training
seed share part of the noise. A search draws points, scores each once and keeps the best. The kept point is
then scored with fresh noise. Some designs serve only as comparison; the product does not offer them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.paired import by_unit, estimate_differences
from orchestrator.statistics.verdicts import verdict

Values = NDArray[np.float64]
STUDIES = 400
NOISE = 1.0
"""Standard deviation of a score over training seeds."""
SHARED_VARIANCE = 0.5
"""Part of the noise variance that arms with the same training seed share."""


@dataclass(frozen=True)
class Surface:
    """Dependence of the score on the searched value."""

    steepness: float
    optimum: float
    optimum_of_arms: float
    """Equal to `optimum` or its mirror image, so that searches of all arms reach the same scores."""


SURFACES = {
    "flat": Surface(1.0, 0.5, 0.5),
    "steep": Surface(40.0, 0.5, 0.5),
    "moved optimum": Surface(20.0, 0.3, 0.7),
}


@dataclass(frozen=True)
class Design:
    """Number of searches, trials and seeds of every arm."""

    repeats: int
    trials: int
    """Number of trials of each search."""
    seeds: int
    """Confirm seeds of each repeat."""
    has_same_points: bool = False
    """True if one search draws the same points in all arms; repeated searches always do."""
    finalists: int = 1
    """Number of best points that are scored on `CHOICE_SEEDS` more seeds before the final choice."""
    is_crossed: bool = False
    """True if arm and baseline are both scored at the best points of both."""

    @property
    def runs(self) -> int:
        """Return the number of trained models per arm."""
        choice_runs = CHOICE_SEEDS * self.finalists if self.finalists > 1 else 0
        return self.repeats * (self.trials + choice_runs + self.seeds * (2 if self.is_crossed else 1))


CHOICE_SEEDS = 3
ONE_SEARCH = Design(1, 12, 8)
EIGHT_REPEATS = Design(8, 3, 1)
THREE_REPEATS = Design(3, 3, 1)
TWO_SEEDS_EACH = Design(4, 3, 2)
ARMS = (1, 4, 12)
DESIGNS = {
    "one search, 12 trials, 8 seeds": ONE_SEARCH,
    "one search, best 4 points scored on 3 more seeds": Design(1, 12, 8, finalists=4),
    "one search, same points in all arms": Design(1, 12, 8, has_same_points=True),
    "one search, both arms at both best points": Design(1, 12, 8, is_crossed=True),
    "3 searches of 3 trials, one seed each": THREE_REPEATS,
    "4 searches of 3 trials, two seeds each": TWO_SEEDS_EACH,
    "6 searches of 3 trials, one seed each": Design(6, 3, 1),
    "8 searches of 3 trials, one seed each": EIGHT_REPEATS,
    "8 searches of 12 trials, one seed each": Design(8, 12, 1),
}


def count_decided(
    surface: Surface, design: Design, arms: int, effect: float, rng: np.random.Generator
) -> int:
    """Return how many of `arms` a study decides; `effect` is added to their scores."""
    best_points = _search_points(surface, design, arms, rng)
    scores, baseline = _score_points(surface, design, best_points, rng)
    cells = [*product(range(design.repeats), range(design.seeds))]
    units = {index: repeat if design.repeats > 1 else index for index, (repeat, _) in enumerate(cells)}
    differences = {
        (f"arm-{arm}", "score"): by_unit(
            {
                index: float(effect + scores[arm][cell] - baseline[arm][cell])
                for index, cell in enumerate(cells)
            },
            units,
        )
        for arm in range(1, arms + 1)
    }
    comparisons = estimate_differences(differences, family=arms)
    return sum(verdict(comparison, better="max").kind != "undecided" for comparison in comparisons.values())


def _search_points(surface: Surface, design: Design, arms: int, rng: np.random.Generator) -> Values:
    """Return the best point of each repeat of each arm's search."""
    shape = (arms + 1, design.repeats, design.trials)
    points = rng.uniform(size=shape)
    if design.repeats > 1 or design.has_same_points:
        points = np.broadcast_to(points[:1], shape)
    optima = _optimum_array(surface, arms)
    scores = _draw_noise(shape, rng) - surface.steepness * (points - optima) ** 2
    if design.finalists > 1:
        best_indices = np.argsort(-scores, axis=-1)[..., : design.finalists]
        points = np.take_along_axis(points, best_indices, axis=-1)
        repeated_scores = _draw_noise((CHOICE_SEEDS, *points.shape), rng, axis=1).mean(axis=0)
        scores = repeated_scores - surface.steepness * (points - optima) ** 2
    return np.take_along_axis(points, np.argmax(scores, axis=-1)[..., None], axis=-1)[..., 0]


def _score_points(
    surface: Surface, design: Design, best_points: Values, rng: np.random.Generator
) -> tuple[Values, Values]:
    """Return the scores of all arms and the baseline scores that they are compared with."""
    shape = (*best_points.shape, design.seeds)
    shared_noise = rng.normal(size=(1, *shape[1:]))

    def scores(points: Values, optima: Values) -> Values:
        noise = NOISE * (
            np.sqrt(SHARED_VARIANCE) * shared_noise + np.sqrt(1 - SHARED_VARIANCE) * rng.normal(size=shape)
        )
        return noise - surface.steepness * (points[..., None] - optima) ** 2

    optima = _optimum_array(surface, len(best_points) - 1)
    own_scores = scores(best_points, optima)
    if not design.is_crossed:
        return own_scores, np.broadcast_to(own_scores[:1], shape)
    scores_at_baseline = scores(np.broadcast_to(best_points[:1], best_points.shape), optima)
    return (own_scores + scores_at_baseline) / 2, (own_scores[:1] + scores(best_points, optima[:1])) / 2


def _optimum_array(surface: Surface, arms: int) -> Values:
    return np.array([surface.optimum, *[surface.optimum_of_arms] * arms])[:, None, None]


def _draw_noise(shape: tuple[int, ...], rng: np.random.Generator, axis: int = 0) -> Values:
    """Return noise that arms share in part; `axis` counts arms."""
    shared_noise = rng.normal(size=(*shape[:axis], 1, *shape[axis + 1 :]))
    return NOISE * (
        np.sqrt(SHARED_VARIANCE) * shared_noise + np.sqrt(1 - SHARED_VARIANCE) * rng.normal(size=shape)
    )


def decision_rate(surface: Surface, design: Design, arms: int, effect: float = 0.0) -> float:
    """Return the share of studies that decide any arm."""
    rng = np.random.default_rng([design.repeats, design.trials, design.seeds, arms])
    return sum(count_decided(surface, design, arms, effect, rng) > 0 for _ in range(STUDIES)) / STUDIES


def rate_table() -> Iterator[str]:
    """Yield a Markdown table of decision rates without an effect and with one of two standard deviations."""
    columns = [*product(SURFACES, ARMS)]
    yield f"| design | runs per arm | {' | '.join(f'{name}, {arms}' for name, arms in columns)} |"
    yield "|---" * (2 + len(columns)) + "|"
    for name, design in DESIGNS.items():
        rates = (
            [decision_rate(SURFACES[surface], design, arms, effect) for effect in (0.0, 2.0 * NOISE)]
            for surface, arms in columns
        )
        cells = " | ".join(f"{null_rate:.2f} / {power:.2f}" for null_rate, power in rates)
        yield f"| {name} | {design.runs} | {cells} |"


if __name__ == "__main__":
    for line in rate_table():
        print(line, flush=True)
