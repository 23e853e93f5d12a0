"""Simulate many studies with interim looks."""

import numpy as np
from scipy import stats

from orchestrator.statistics import sequential
from orchestrator.statistics.paired import LEVEL, MIN_MEDIAN_SHARE
from tests.orchestrator.statistics.studies import (
    RESOLUTION,
    SAMPLERS,
    STUDIES,
    Array,
    Sampler,
    decided_verdicts,
    interval_rejections,
    intervals_within_margin,
    paired_differences,
)

SEEDS = 8


def remaining_chances(seen_differences: Array, seeds: int, step: float, margin: float | None) -> Array:
    """Return `sequential.decision_probability` of all studies and arms."""
    number, arms = seen_differences.shape[1:]
    spreads = seen_differences.std(1, ddof=1)
    median = np.sort(spreads, axis=1)[:, [(arms - 1) // 2]]
    bounded_spreads = np.maximum(np.maximum(spreads, step / np.sqrt(6)), MIN_MEDIAN_SHARE * median)
    bounded_spreads[bounded_spreads == 0] = np.nan
    mean, distribution = np.abs(seen_differences.mean(1)), stats.t(number - 1)
    half_widths = stats.t.isf(LEVEL / (2 * arms), seeds - 1) * bounded_spreads / np.sqrt(seeds)
    remaining_spreads = bounded_spreads * np.sqrt((seeds - number) / (seeds * number))
    chances = distribution.sf((half_widths - mean) / remaining_spreads) + distribution.cdf(
        (-half_widths - mean) / remaining_spreads
    )
    if margin is not None:
        margin_room = margin - half_widths
        chance_inside = distribution.cdf((margin_room - mean) / remaining_spreads) - distribution.cdf(
            (-margin_room - mean) / remaining_spreads
        )
        chances = chances + np.where(margin_room > 0, chance_inside, 0.0)
    result: Array = np.nan_to_num(chances, nan=1.0)
    return result


def simulate_looks(
    values: Array, step: float = 0.0, margin: float | None = None, hopeless: float = sequential.MIN_CHANCE
) -> tuple[Array, Array, Array]:
    """Simulate interim looks of studies.

    Args:
        values: Scores of shape (studies, seeds, baseline and arms).
        step: Resolution of the scores.
        margin: Largest difference that does not matter.
        hopeless: Chance of a decision below which a look stops an arm.

    Returns:
        Three arrays of shape (studies, arms): whether a difference is shown, whether a difference larger than
        the margin is excluded, and the number of seeds that were run.
    """
    arm_differences = paired_differences(values)
    seeds = arm_differences.shape[1]
    shape = (arm_differences.shape[0], arm_differences.shape[2])
    is_shown, is_excluded, is_stopped = np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, bool)
    seeds_run = np.full(shape, seeds)
    for number in (*sequential.look_sizes(seeds), seeds):
        level = LEVEL if number == seeds else LEVEL * sequential.LOOK_LEVEL_SHARE
        seen_differences = arm_differences[:, :number]
        is_active = ~(is_shown | is_excluded | is_stopped)
        is_different = (
            interval_rejections(seen_differences, step, level)
            & decided_verdicts(seen_differences, step)
            & is_active
        )
        is_equal = np.zeros(shape, bool)
        if margin is not None:
            is_equal = (
                intervals_within_margin(seen_differences, step, level, margin)
                & ~interval_rejections(seen_differences, step, level)
                & is_active
            )
        is_shown |= is_different
        is_excluded |= is_equal
        seeds_run[is_different | is_equal] = number
        if number < seeds:
            is_undecided = (
                is_active & ~is_different & ~is_equal & ~interval_rejections(seen_differences, step)
            )
            chances = remaining_chances(seen_differences, seeds, step, margin)
            is_hopeless = is_undecided & (chances < hopeless)
            is_stopped |= is_hopeless
            seeds_run[is_hopeless] = number
    return is_shown, is_excluded, seeds_run


def family_wise_error(sampler: Sampler, arms: int) -> float:
    """Return the share of studies without effects where a look or the end shows one."""
    rng = np.random.default_rng([SAMPLERS.index(sampler), arms])
    values = sampler(rng, (STUDIES, SEEDS, arms + 1))
    return float(simulate_looks(values, RESOLUTION.get(sampler, 0.0))[0].any(1).mean())


def power_and_seeds(
    effect: float, margin: float | None = None, hopeless: float = sequential.MIN_CHANCE
) -> tuple[float, float, float, float]:
    """Return power and costs of studies with looks at four arms.

    `effect` and `margin` are in standard deviations.

    Returns:
        Power at the end of all seeds; power with looks; share of arms whose difference is within the margin;
        share of the seeds that were run.
    """
    values = np.random.default_rng([7, 4]).normal(size=(STUDIES, SEEDS, 5))
    values[..., 1:] += effect
    is_shown, is_excluded, seeds_run = simulate_looks(values, margin=margin, hopeless=hopeless)
    is_shown_at_end = decided_verdicts(paired_differences(values))
    return tuple(
        float(values.mean()) for values in (is_shown_at_end, is_shown, is_excluded, seeds_run / SEEDS)
    )  # type: ignore[return-value]
