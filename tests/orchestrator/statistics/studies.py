"""Studies drawn at random, many at once, for tests of what statistics claim; as a module it prints the
tables.

    python -m tests.orchestrator.statistics.studies
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from orchestrator.statistics.paired import LEVEL, MEDIAN_SHARE
from orchestrator.statistics.verdicts import ALONE_FACTOR, ALONE_FROM

Array = NDArray[np.float64]
STUDIES = 2000
SEEDS = (3, 4, 5, 6, 8, 12, 16)
ARMS = (1, 4, 15)


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.normal(size=shape)


def binomial(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Accuracies on 100 examples."""
    return rng.binomial(100, 0.9, size=shape) / 100


def coarse(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Accuracies on 50 examples that are nearly all right, so that many seeds are the same."""
    return rng.binomial(50, 0.98, size=shape) / 50


def bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Two tight groups, ten of their spreads apart."""
    return rng.normal(size=shape) * 0.2 + 2 * (rng.random(shape) < 0.5)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.lognormal(size=shape)


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Student's t with 3 degrees of freedom."""
    return rng.standard_t(3, size=shape)


def unequal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Spreads from 1, the baseline's, to 5."""
    return rng.normal(size=shape) * np.geomspace(1, 5, shape[-1])


def wild_baseline(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A baseline that varies five times as much as its arms, so that all differences move together."""
    return rng.normal(size=shape) * np.r_[5, np.ones(shape[-1] - 1)]


def collapsing(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """One seed in five of every arm collapses, and the baseline, of the same mean, never does."""
    found = rng.normal(size=shape) * 0.05 + 1.0 - (rng.random(shape) < 0.2)
    found[..., 0] = 0.8 + rng.normal(size=shape[:-1]) * 0.05
    return found


RESOLUTION = {binomial: 0.01, coarse: 0.02}
KINDS: tuple[Callable[[np.random.Generator, tuple[int, ...]], Array], ...] = (
    normal,
    binomial,
    coarse,
    bimodal,
    skewed,
    heavy,
    unequal,
    wild_baseline,
)


def differences(values: Array) -> Array:
    """(studies, seeds, baseline and arms) to (studies, seeds, arms)."""
    found: Array = values[..., 1:] - values[..., :1]
    return found


def t_values(found: Array, step: float, share: float = MEDIAN_SHARE) -> Array:
    """|t| of every study and arm with the spreads bounded below, as `compare` has it."""
    spreads = found.std(1, ddof=1)
    spreads[spreads < 1e-9 * np.abs(found).max(1)] = 0.0
    median = np.sort(spreads, axis=1)[:, [(spreads.shape[1] - 1) // 2]]
    used = np.maximum(np.maximum(spreads, step / np.sqrt(6)), share * median)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(np.abs(found.mean(1)) * np.sqrt(found.shape[1]) / used)


def rejected(found: Array, step: float = 0.0, level: float = LEVEL) -> Array:
    """Where intervals leave out 0."""
    seeds, arms = found.shape[1:]
    return t_values(found, step) > stats.t.isf(level / (2 * arms), seeds - 1)


def verdicts(found: Array, step: float = 0.0, level: float = LEVEL) -> Array:
    """Where a verdict is better or worse, that is also without any one seed."""
    shown, seeds = rejected(found, step, level), found.shape[1]
    spreads = found.std(1, ddof=1)
    median = np.sort(spreads, axis=1)[:, [(spreads.shape[1] - 1) // 2]]
    least = np.maximum(step / np.sqrt(6), MEDIAN_SHARE * median)
    for seed in range(seeds if seeds >= ALONE_FROM else 0):
        rest = np.delete(found, seed, axis=1)
        used = np.maximum(rest.std(1, ddof=1), least)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.nan_to_num(np.abs(rest.mean(1)) * np.sqrt(seeds - 1) / used, posinf=np.inf)
        shown &= t >= stats.t.isf(ALONE_FACTOR * level / 2, seeds - 2)
    return shown


def within(found: Array, margin: float, level: float = LEVEL) -> Array:
    """Where intervals lie within the margin on both sides."""
    seeds, arms = found.shape[1:]
    spreads = found.std(1, ddof=1)
    median = np.sort(spreads, axis=1)[:, [(arms - 1) // 2]]
    used = np.maximum(spreads, MEDIAN_SHARE * median)
    half = stats.t.isf(level / (2 * arms), seeds - 1) * used / np.sqrt(seeds)
    inside: Array = np.abs(found.mean(1)) + half < margin
    return inside


def equal_at_the_margin(seeds: int, arms: int, margin: float) -> float:
    """Share of studies that call an arm equal although all arms differ by just the margin, in standard
    deviations of a run."""
    values = np.random.default_rng([11, seeds, arms]).normal(size=(STUDIES, seeds, arms + 1))
    values[..., 1:] += margin
    return float(within(differences(values), margin).any(1).mean())


def flips_with_holm(found: Array, level: float = LEVEL) -> Array:
    """Exact sign flips of every arm, corrected by Holm: what this replaced."""
    seeds, arms = found.shape[1:]
    signs = 1 - 2 * ((np.arange(2**seeds)[:, None] >> np.arange(seeds)) & 1)
    sums = np.abs(np.einsum("fs,bsa->bfa", signs, found))
    p = (sums >= np.abs(found.sum(1))[:, None] - 1e-9).mean(1)
    order = np.argsort(p, axis=1)
    steps = np.take_along_axis(p, order, axis=1) * (arms - np.arange(arms))
    kept = np.minimum.accumulate(steps <= level, axis=1)
    out = np.zeros_like(kept)
    np.put_along_axis(out, order, kept, axis=1)
    return out


def family_wise(
    kind: Callable[[np.random.Generator, tuple[int, ...]], Array], seeds: int, arms: int
) -> tuple[float, float]:
    """Share of studies without any effect in which an interval leaves out 0, and in which a verdict says
    so."""
    rng = np.random.default_rng([KINDS.index(kind) if kind in KINDS else 99, seeds, arms])
    found, step = differences(kind(rng, (STUDIES, seeds, arms + 1))), RESOLUTION.get(kind, 0.0)
    return float(rejected(found, step).any(1).mean()), float(verdicts(found, step).any(1).mean())


def found_effects(effect: float, seeds: int, arms: int) -> dict[str, float]:
    """Share of studies that find an effect of one arm, in standard deviations of a run, by procedure. Flips
    of more than 12 seeds take too much memory."""
    values = np.random.default_rng([7, seeds, arms]).normal(size=(STUDIES, seeds, arms + 1))
    values[..., 1] += effect
    found = differences(values)
    by = {"intervals": rejected, "verdicts": verdicts, "sign flips, Holm": flips_with_holm}
    return {name: float(procedure(found)[:, 0].mean()) for name, procedure in by.items()}


def _row(name: str, values: Sequence[float]) -> str:
    return f"| {name} | " + " | ".join(f"{value:.3f}" for value in values) + " |"


def main() -> None:
    for arms in ARMS:
        print(f"\nfamily-wise error of intervals (and of verdicts), {arms} arms, by seeds\n")
        print("| seeds drawn | " + " | ".join(map(str, SEEDS)) + " |\n" + "|---" * (len(SEEDS) + 1) + "|")
        for kind in (*KINDS, collapsing):
            pairs = [family_wise(kind, seeds, arms) for seeds in SEEDS]
            print(f"| {kind.__name__} | " + " | ".join(f"{a:.3f} ({b:.3f})" for a, b in pairs) + " |")
    print("\nshare called equal where the truth is the margin of 5 standard deviations, by seeds\n")
    print("| arms | " + " | ".join(map(str, SEEDS)) + " |\n" + "|---" * (len(SEEDS) + 1) + "|")
    for arms in ARMS:
        print(_row(str(arms), [equal_at_the_margin(seeds, arms, 5.0) for seeds in SEEDS]))
    for effect in (1.0, 2.0, 3.0):
        print(f"\npower, effect of {effect:g} standard deviations, 4 arms, by seeds\n")
        tried = {seeds: found_effects(effect, seeds, 4) for seeds in SEEDS if seeds <= 12}
        print("| procedure | " + " | ".join(map(str, tried)) + " |\n" + "|---" * (len(tried) + 1) + "|")
        for name in next(iter(tried.values())):
            print(_row(name, [each[name] for each in tried.values()]))


if __name__ == "__main__":
    main()
