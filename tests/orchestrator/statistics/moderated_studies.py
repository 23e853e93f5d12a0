"""Studies drawn at random for the moderated t statistics; as a module it prints their table.

python -m tests.orchestrator.statistics.moderated_studies
"""

import numpy as np
from scipy import special, stats

from orchestrator.statistics.moderated import ARMS_LEAST, WILD
from orchestrator.statistics.paired import LEVEL, MEDIAN_SHARE
from tests.orchestrator.statistics import studies
from tests.orchestrator.statistics.studies import Array

STUDIES = 2000
SEEDS = (5, 8)
ARMS = (4, 12)
EFFECT = 2.0
"""In standard deviations of a run, of one arm."""
MOST = 1e8
"""Degrees of freedom that stand for infinitely many."""


def wild_arm(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """One arm varies five times as much as all others."""
    return rng.normal(size=shape) * np.r_[1, 5, np.ones(shape[-1] - 2)]


LAWS = (studies.normal, studies.heavy, studies.skewed, studies.unequal, wild_arm, studies.wild_baseline)


def _inverse_trigamma(value: Array) -> Array:
    """Newton's method of Smyth (2004), appendix."""
    value = np.maximum(value, 1 / MOST)
    found = 0.5 + 1 / value
    for _ in range(30):
        trigamma = special.polygamma(1, found)
        found += trigamma * (1 - trigamma / value) / special.polygamma(2, found)
    return found


def _prior(variances: Array, freedom: int, used: Array, shared: Array) -> tuple[Array, Array]:
    """Prior degrees of freedom and variance of every study, from the arms that are `used`."""
    arms, half = used.sum(1), freedom / 2
    logs = np.log(variances) - special.digamma(half) + np.log(half)
    mean = (logs * used).sum(1) / arms
    scatter = (((logs - mean[:, None]) ** 2) * used).sum(1) / (arms - 1)
    found = _inverse_trigamma(scatter - special.polygamma(1, half) * (1 - shared))
    return 2 * found, np.exp(mean + special.digamma(found) - np.log(found))


def moderated(found: Array, level: float = LEVEL) -> Array:
    """Where moderated intervals leave out 0, of differences by study, seed and arm."""
    seeds, arms = found.shape[1:]
    freedom, centred = seeds - 1, found - found.mean(1, keepdims=True)
    covariances = np.einsum("bsi,bsj->bij", centred, centred) / freedom
    variances = np.einsum("bii->bi", covariances)
    tame = np.ones(variances.shape, dtype=bool)
    for arm in range(arms):
        others = np.arange(arms) != arm
        prior, variance = _prior(variances, freedom, np.broadcast_to(others, tame.shape), np.zeros(1))
        tame[:, arm] = special.fdtrc(freedom, prior, variances[:, arm] / variance) >= WILD
    used, many = tame, tame.sum(1)
    pairs = used[:, :, None] & used[:, None, :]
    squares = covariances**2 / (variances[:, :, None] * variances[:, None, :])
    shared = ((squares * pairs).sum((1, 2)) - many) / np.maximum(many * (many - 1), 1)
    enough = (many >= ARMS_LEAST)[:, None]
    more, variance = _prior(variances, freedom, used | ~enough, shared)
    more = np.clip(more, 0, np.maximum(many * freedom / (1 + (many - 1) * shared) - freedom, 0))[:, None]
    more = np.where(used & enough, more, 0)
    spreads = np.sqrt((more * variance[:, None] + freedom * variances) / (more + freedom))
    median = np.sort(np.sqrt(variances), axis=1)[:, [(arms - 1) // 2]]
    t = np.abs(found.mean(1)) * np.sqrt(seeds) / np.maximum(spreads, MEDIAN_SHARE * median)
    shown: Array = t > stats.t.isf(level / (2 * arms), freedom + more)
    return shown


def errors(law: object, seeds: int, arms: int) -> tuple[float, float]:
    """Share of studies without any effect that report one, by the ordinary and by the moderated t."""
    place = [law.__name__ for law in LAWS].index(law.__name__)  # type: ignore[attr-defined]
    rng = np.random.default_rng([place, seeds, arms])
    found = studies.differences(LAWS[place](rng, (STUDIES, seeds, arms + 1)))
    return float(studies.rejected(found).any(1).mean()), float(moderated(found).any(1).mean())


def powers(seeds: int, arms: int) -> tuple[float, float]:
    """Share of studies that find the effect of one arm, by the ordinary and by the moderated t."""
    values = np.random.default_rng([7, seeds, arms]).normal(size=(STUDIES, seeds, arms + 1))
    values[..., 1] += EFFECT
    found = studies.differences(values)
    return float(studies.rejected(found)[:, 0].mean()), float(moderated(found)[:, 0].mean())


def main() -> None:
    cells = [(seeds, arms) for seeds in SEEDS for arms in ARMS]
    print("| seeds drawn | " + " | ".join(f"{seeds} seeds, {arms} arms" for seeds, arms in cells) + " |")
    print("|---" * (len(cells) + 1) + "|")
    rows = [(law.__name__.replace("_", " "), [errors(law, *cell) for cell in cells]) for law in LAWS]
    rows.append((f"power, effect of {EFFECT:g} standard deviations", [powers(*cell) for cell in cells]))
    for name, pairs in rows:
        print(f"| {name} | " + " | ".join(f"{own:.3f} / {shared:.3f}" for own, shared in pairs) + " |")


if __name__ == "__main__":
    main()
