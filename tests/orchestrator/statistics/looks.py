"""Simulate many studies with interim looks; as a module, print the tables.

python -m tests.orchestrator.statistics.looks
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from orchestrator.statistics import sequential
from orchestrator.statistics.paired import LEVEL, MEDIAN_SHARE
from tests.orchestrator.statistics.studies import (
    ARMS,
    RESOLUTION,
    SAMPLERS,
    STUDIES,
    Array,
    decided_verdicts,
    interval_rejections,
    paired_differences,
    sample_collapsing,
)

SEEDS = 8


def intervals_within_margin(arm_differences: Array, step: float, level: float, margin: float) -> Array:
    """Return where intervals lie within the margin on both sides."""
    seeds, arms = arm_differences.shape[1:]
    spreads = arm_differences.std(1, ddof=1)
    median = np.sort(spreads, axis=1)[:, [(arms - 1) // 2]]
    bounded_spreads = np.maximum(np.maximum(spreads, step / np.sqrt(6)), MEDIAN_SHARE * median)
    half_widths = stats.t.isf(level / (2 * arms), seeds - 1) * bounded_spreads / np.sqrt(seeds)
    is_inside: Array = (np.abs(arm_differences.mean(1)) + half_widths < margin) & (bounded_spreads > 0)
    return is_inside


def remaining_chances(seen_differences: Array, seeds: int, step: float, margin: float | None) -> Array:
    """Return `sequential.chance_left` of all studies and arms."""
    number, arms = seen_differences.shape[1:]
    spreads = seen_differences.std(1, ddof=1)
    median = np.sort(spreads, axis=1)[:, [(arms - 1) // 2]]
    bounded_spreads = np.maximum(np.maximum(spreads, step / np.sqrt(6)), MEDIAN_SHARE * median)
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
    values: Array,
    step: float = 0.0,
    margin: float | None = None,
    level_share: float = sequential.LOOK_SHARE,
    hopeless: float = sequential.HOPELESS,
) -> tuple[Array, Array, Array]:
    """Simulate interim looks of studies.

    Args:
        values: Scores of shape (studies, seeds, baseline and arms).
        step: Resolution of the scores.
        margin: Largest difference that does not matter.
        level_share: Share of the level that each look uses.
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
    for number in (*sequential.looks(seeds), seeds):
        level, seen_differences = (
            LEVEL if number == seeds else LEVEL * level_share,
            arm_differences[:, :number],
        )
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
            is_hopeless = is_undecided & (remaining_chances(seen_differences, seeds, step, margin) < hopeless)
            is_stopped |= is_hopeless
            seeds_run[is_hopeless] = number
    return is_shown, is_excluded, seeds_run


def family_wise_error(kind: object, arms: int, level_share: float = sequential.LOOK_SHARE) -> float:
    """Return the share of studies without effects where a look or the end shows one."""
    sampler = next(sampler for sampler in (*SAMPLERS, sample_collapsing) if sampler is kind)
    index = SAMPLERS.index(sampler) if sampler in SAMPLERS else 99
    values = sampler(np.random.default_rng([index, arms]), (STUDIES, SEEDS, arms + 1))
    return float(
        simulate_looks(values, RESOLUTION.get(sampler, 0.0), level_share=level_share)[0].any(1).mean()
    )


def power_and_seeds(
    effect: float,
    arms: int = 4,
    margin: float | None = None,
    level_share: float = sequential.LOOK_SHARE,
    hopeless: float = sequential.HOPELESS,
) -> tuple[float, float, float, float]:
    """Return power and costs of studies with looks.

    `effect` and `margin` are in standard deviations.

    Returns:
        Power at the end of all seeds, power with looks, share of arms without a difference larger than the
        margin, and share of the seeds that were run.
    """
    values = np.random.default_rng([7, arms]).normal(size=(STUDIES, SEEDS, arms + 1))
    values[..., 1:] += effect
    is_shown, is_excluded, seeds_run = simulate_looks(
        values, margin=margin, level_share=level_share, hopeless=hopeless
    )
    is_shown_at_end = decided_verdicts(paired_differences(values))
    return tuple(
        float(values.mean()) for values in (is_shown_at_end, is_shown, is_excluded, seeds_run / SEEDS)
    )  # type: ignore[return-value]


def _print_table(title: str, headers: Sequence[object], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(map(str, headers))} |\n" + "|---" * len(headers) + "|")
    for row in rows:
        cells = [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    kinds, effects = (*SAMPLERS, sample_collapsing), (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
    headers = ("power", "with looks", "no difference", "seeds run")
    for level_share in (0.02, sequential.LOOK_SHARE, 0.1):
        rows = [
            [kind.__name__, *(family_wise_error(kind, arms, level_share) for arms in ARMS)] for kind in kinds
        ]
        _print_table(
            f"family-wise error, looks at {level_share:g} of the level", ("seeds drawn", *ARMS), rows
        )
        spending_rows = [[effect, *power_and_seeds(effect, level_share=level_share)] for effect in effects]
        _print_table("4 arms, by effect", ("effect", *headers), spending_rows)
    for hopeless in (0.0, 0.2):
        spending_rows = [[effect, *power_and_seeds(effect, hopeless=hopeless)] for effect in effects]
        _print_table(f"4 arms, given up below a chance of {hopeless:g}", ("effect", *headers), spending_rows)
    rows = [[margin, *power_and_seeds(0.0, margin=margin)] for margin in (2.0, 3.0, 5.0, 10.0)]
    _print_table("no effect, by margin", ("margin", *headers), rows)


if __name__ == "__main__":
    main()
