"""Simulate many studies to test the claims of statistics; as a module, print the tables.

python -m tests.orchestrator.statistics.studies
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from orchestrator.statistics.paired import LEVEL, MIN_MEDIAN_SHARE
from orchestrator.statistics.verdicts import MIN_REMOVAL_SEEDS, REMOVAL_LEVEL_FACTOR

Array = NDArray[np.float64]
STUDIES = 2000
SEEDS = (3, 4, 5, 6, 8, 12, 16)
ARMS = (1, 4, 15)


def sample_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.normal(size=shape)


def sample_binomial(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw accuracies on 100 examples."""
    return rng.binomial(100, 0.9, size=shape) / 100


def sample_coarse(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw accuracies near 1 on 50 examples, so that many seeds are equal."""
    return rng.binomial(50, 0.98, size=shape) / 50


def sample_bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw values in two tight groups, ten of their standard deviations apart."""
    return rng.normal(size=shape) * 0.2 + 2 * (rng.random(shape) < 0.5)


def sample_skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.lognormal(size=shape)


def sample_heavy_tailed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw from Student's t with 3 degrees of freedom."""
    return rng.standard_t(3, size=shape)


def sample_unequal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw values whose standard deviations grow from 1, the baseline's, to 5."""
    return rng.normal(size=shape) * np.geomspace(1, 5, shape[-1])


def sample_unstable_baseline(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw a baseline that varies five times as much as its arms, which correlates all differences."""
    return rng.normal(size=shape) * np.r_[5, np.ones(shape[-1] - 1)]


def sample_collapsing(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw arms where one seed in five collapses, and a stable baseline with the same mean."""
    values = rng.normal(size=shape) * 0.05 + 1.0 - (rng.random(shape) < 0.2)
    values[..., 0] = 0.8 + rng.normal(size=shape[:-1]) * 0.05
    return values


Sampler = Callable[[np.random.Generator, tuple[int, ...]], Array]
RESOLUTION: dict[Sampler, float] = {sample_binomial: 0.01, sample_coarse: 0.02}
SAMPLERS: tuple[Sampler, ...] = (
    sample_normal,
    sample_binomial,
    sample_coarse,
    sample_bimodal,
    sample_skewed,
    sample_heavy_tailed,
    sample_unequal,
    sample_unstable_baseline,
)


def paired_differences(values: Array) -> Array:
    """Return paired differences of shape (studies, seeds, arms) from values with a baseline."""
    result: Array = values[..., 1:] - values[..., :1]
    return result


def t_statistics(arm_differences: Array, step: float, median_share: float = MIN_MEDIAN_SHARE) -> Array:
    """Return |t| of every study and arm with spreads bounded as in `estimate_differences`."""
    spreads = arm_differences.std(1, ddof=1)
    spreads[spreads < 1e-9 * np.abs(arm_differences).max(1)] = 0.0
    median = np.sort(spreads, axis=1)[:, [(spreads.shape[1] - 1) // 2]]
    bounded_spreads = np.maximum(np.maximum(spreads, step / np.sqrt(6)), median_share * median)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(
            np.abs(arm_differences.mean(1)) * np.sqrt(arm_differences.shape[1]) / bounded_spreads
        )


def interval_rejections(arm_differences: Array, step: float = 0.0, level: float = LEVEL) -> Array:
    """Return where intervals exclude 0."""
    seeds, arms = arm_differences.shape[1:]
    return t_statistics(arm_differences, step) > stats.t.isf(level / (2 * arms), seeds - 1)


def decided_verdicts(arm_differences: Array, step: float = 0.0, level: float = LEVEL) -> Array:
    """Return where a verdict is better or worse, which must hold without any one seed."""
    is_decided, seeds = interval_rejections(arm_differences, step, level), arm_differences.shape[1]
    spreads = arm_differences.std(1, ddof=1)
    median = np.sort(spreads, axis=1)[:, [(spreads.shape[1] - 1) // 2]]
    lower_bounds = np.maximum(step / np.sqrt(6), MIN_MEDIAN_SHARE * median)
    for seed in range(seeds if seeds >= MIN_REMOVAL_SEEDS else 0):
        other_seeds = np.delete(arm_differences, seed, axis=1)
        bounded_spreads = np.maximum(other_seeds.std(1, ddof=1), lower_bounds)
        with np.errstate(divide="ignore", invalid="ignore"):
            t_of_rest = np.nan_to_num(
                np.abs(other_seeds.mean(1)) * np.sqrt(seeds - 1) / bounded_spreads, posinf=np.inf
            )
        is_decided &= t_of_rest >= stats.t.isf(REMOVAL_LEVEL_FACTOR * level / 2, seeds - 2)
    return is_decided


def intervals_within_margin(arm_differences: Array, step: float, level: float, margin: float) -> Array:
    """Return where intervals lie within the margin on both sides."""
    seeds, arms = arm_differences.shape[1:]
    spreads = arm_differences.std(1, ddof=1)
    median = np.sort(spreads, axis=1)[:, [(arms - 1) // 2]]
    bounded_spreads = np.maximum(np.maximum(spreads, step / np.sqrt(6)), MIN_MEDIAN_SHARE * median)
    half_widths = stats.t.isf(level / (2 * arms), seeds - 1) * bounded_spreads / np.sqrt(seeds)
    is_inside: Array = (np.abs(arm_differences.mean(1)) + half_widths < margin) & (bounded_spreads > 0)
    return is_inside


def equality_error(seeds: int, arms: int, margin: float) -> float:
    """Return the share of studies that call an arm equal that differs by the margin.

    The margin is in standard deviations of a run.
    """
    values = np.random.default_rng([11, seeds, arms]).normal(size=(STUDIES, seeds, arms + 1))
    values[..., 1:] += margin
    return float(intervals_within_margin(paired_differences(values), 0.0, LEVEL, margin).any(1).mean())


def sign_flip_rejections(arm_differences: Array, level: float = LEVEL) -> Array:
    """Return rejections by exact sign flips with Holm's correction, for comparison."""
    seeds, arms = arm_differences.shape[1:]
    signs = 1 - 2 * ((np.arange(2**seeds)[:, None] >> np.arange(seeds)) & 1)
    flip_sums = np.abs(np.einsum("fs,bsa->bfa", signs, arm_differences))
    p = (flip_sums >= np.abs(arm_differences.sum(1))[:, None] - 1e-9).mean(1)
    order = np.argsort(p, axis=1)
    adjusted_p = np.take_along_axis(p, order, axis=1) * (arms - np.arange(arms))
    is_rejected_in_order = np.minimum.accumulate(adjusted_p <= level, axis=1)
    is_rejected = np.zeros_like(is_rejected_in_order)
    np.put_along_axis(is_rejected, order, is_rejected_in_order, axis=1)
    return is_rejected


def family_wise_errors(sampler: Sampler, seeds: int, arms: int) -> tuple[float, float]:
    """Return the shares of studies without effects where an interval or a verdict shows one."""
    rng = np.random.default_rng([SAMPLERS.index(sampler) if sampler in SAMPLERS else 99, seeds, arms])
    arm_differences, step = (
        paired_differences(sampler(rng, (STUDIES, seeds, arms + 1))),
        RESOLUTION.get(sampler, 0.0),
    )
    return float(interval_rejections(arm_differences, step).any(1).mean()), float(
        decided_verdicts(arm_differences, step).any(1).mean()
    )


def power_by_procedure(effect: float, seeds: int, arms: int) -> dict[str, float]:
    """Return the share of studies that find an effect of one arm, by procedure.

    The effect is in standard deviations of a run. Sign flips of more than 12 seeds need too much memory.
    """
    values = np.random.default_rng([7, seeds, arms]).normal(size=(STUDIES, seeds, arms + 1))
    values[..., 1] += effect
    arm_differences = paired_differences(values)
    procedures = {
        "intervals": interval_rejections,
        "verdicts": decided_verdicts,
        "sign flips, Holm": sign_flip_rejections,
    }
    return {name: float(procedure(arm_differences)[:, 0].mean()) for name, procedure in procedures.items()}


def _format_row(name: str, values: Sequence[float]) -> str:
    return f"| {name} | " + " | ".join(f"{value:.3f}" for value in values) + " |"


def main() -> None:
    for arms in ARMS:
        print(f"\nfamily-wise error of intervals (and of verdicts), {arms} arms, by seeds\n")
        print("| seeds drawn | " + " | ".join(map(str, SEEDS)) + " |\n" + "|---" * (len(SEEDS) + 1) + "|")
        for sampler in (*SAMPLERS, sample_collapsing):
            error_pairs = [family_wise_errors(sampler, seeds, arms) for seeds in SEEDS]
            print(
                f"| {sampler.__name__} | "
                + " | ".join(
                    f"{interval_error:.3f} ({verdict_error:.3f})"
                    for interval_error, verdict_error in error_pairs
                )
                + " |"
            )
    print("\nshare called equal where the truth is the margin of 5 standard deviations, by seeds\n")
    print("| arms | " + " | ".join(map(str, SEEDS)) + " |\n" + "|---" * (len(SEEDS) + 1) + "|")
    for arms in ARMS:
        print(_format_row(str(arms), [equality_error(seeds, arms, 5.0) for seeds in SEEDS]))
    for effect in (1.0, 2.0, 3.0):
        print(f"\npower, effect of {effect:g} standard deviations, 4 arms, by seeds\n")
        power_by_seeds = {seeds: power_by_procedure(effect, seeds, 4) for seeds in SEEDS if seeds <= 12}
        print(
            "| procedure | "
            + " | ".join(map(str, power_by_seeds))
            + " |\n"
            + "|---" * (len(power_by_seeds) + 1)
            + "|"
        )
        for name in next(iter(power_by_seeds.values())):
            print(_format_row(name, [power[name] for power in power_by_seeds.values()]))


if __name__ == "__main__":
    main()
