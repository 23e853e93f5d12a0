"""Simulate studies with moderated t statistics; as a module, print their table.

python -m tests.orchestrator.statistics.moderated_studies
"""

import numpy as np
from scipy import special, stats

from orchestrator.statistics.moderated import MIN_ARMS, OUTLIER_LEVEL
from orchestrator.statistics.paired import LEVEL, MIN_MEDIAN_SHARE
from tests.orchestrator.statistics import studies
from tests.orchestrator.statistics.studies import Array

STUDIES = 2000
SEEDS = (5, 8)
ARMS = (4, 12)
EFFECT = 2.0
"""Effect of one arm in standard deviations of a run."""
MAX_FREEDOM = 1e8
"""Degrees of freedom that count as infinite."""


def sample_unstable_arm(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw values where one arm varies five times as much as the others."""
    return rng.normal(size=shape) * np.r_[1, 5, np.ones(shape[-1] - 2)]


SAMPLERS = (
    studies.sample_normal,
    studies.sample_heavy_tailed,
    studies.sample_skewed,
    studies.sample_unequal,
    sample_unstable_arm,
    studies.sample_unstable_baseline,
)


def _inverse_trigamma(value: Array) -> Array:
    """Solve by Newton's method: Smyth (2004), appendix."""
    value = np.maximum(value, 1 / MAX_FREEDOM)
    solution = 0.5 + 1 / value
    for _ in range(30):
        trigamma = special.polygamma(1, solution)
        solution += trigamma * (1 - trigamma / value) / special.polygamma(2, solution)
    return solution


def _estimate_prior(
    variances: Array, degrees: int, is_used: Array, correlation: Array
) -> tuple[Array, Array]:
    """Return prior degrees of freedom and variance of every study from the used arms."""
    arms, half_degrees = is_used.sum(1), degrees / 2
    log_variances = np.log(variances) - special.digamma(half_degrees) + np.log(half_degrees)
    mean = (log_variances * is_used).sum(1) / arms
    scatter = (((log_variances - mean[:, None]) ** 2) * is_used).sum(1) / (arms - 1)
    half_prior_degrees = _inverse_trigamma(scatter - special.polygamma(1, half_degrees) * (1 - correlation))
    return 2 * half_prior_degrees, np.exp(
        mean + special.digamma(half_prior_degrees) - np.log(half_prior_degrees)
    )


def moderated_rejections(paired_differences: Array, level: float = LEVEL) -> Array:
    """Return where moderated intervals exclude 0, for differences by study, seed and arm."""
    seeds, arms = paired_differences.shape[1:]
    degrees, centred = seeds - 1, paired_differences - paired_differences.mean(1, keepdims=True)
    covariances = np.einsum("bsi,bsj->bij", centred, centred) / degrees
    variances = np.einsum("bii->bi", covariances)
    is_regular = np.ones(variances.shape, dtype=bool)
    for arm in range(arms):
        others = np.arange(arms) != arm
        prior, variance = _estimate_prior(
            variances, degrees, np.broadcast_to(others, is_regular.shape), np.zeros(1)
        )
        is_regular[:, arm] = special.fdtrc(degrees, prior, variances[:, arm] / variance) >= OUTLIER_LEVEL
    is_used, num_used = is_regular, is_regular.sum(1)
    pairs = is_used[:, :, None] & is_used[:, None, :]
    squares = covariances**2 / (variances[:, :, None] * variances[:, None, :])
    correlation = ((squares * pairs).sum((1, 2)) - num_used) / np.maximum(num_used * (num_used - 1), 1)
    has_enough = (num_used >= MIN_ARMS)[:, None]
    prior_degrees, variance = _estimate_prior(variances, degrees, is_used | ~has_enough, correlation)
    prior_degrees = np.clip(
        prior_degrees, 0, np.maximum(num_used * degrees / (1 + (num_used - 1) * correlation) - degrees, 0)
    )[:, None]
    prior_degrees = np.where(is_used & has_enough, prior_degrees, 0)
    spreads = np.sqrt((prior_degrees * variance[:, None] + degrees * variances) / (prior_degrees + degrees))
    median = np.sort(np.sqrt(variances), axis=1)[:, [(arms - 1) // 2]]
    t_statistics = (
        np.abs(paired_differences.mean(1)) * np.sqrt(seeds) / np.maximum(spreads, MIN_MEDIAN_SHARE * median)
    )
    is_rejected: Array = t_statistics > stats.t.isf(level / (2 * arms), degrees + prior_degrees)
    return is_rejected


def error_rates(sampler: object, seeds: int, arms: int) -> tuple[float, float]:
    """Return the share of studies with a false effect by the ordinary and the moderated t."""
    index = [sampler.__name__ for sampler in SAMPLERS].index(sampler.__name__)  # type: ignore[attr-defined]
    rng = np.random.default_rng([index, seeds, arms])
    paired_differences = studies.paired_differences(SAMPLERS[index](rng, (STUDIES, seeds, arms + 1)))
    return float(studies.interval_rejections(paired_differences).any(1).mean()), float(
        moderated_rejections(paired_differences).any(1).mean()
    )


def power_rates(seeds: int, arms: int) -> tuple[float, float]:
    """Return the share of studies that find the effect by the ordinary and the moderated t."""
    values = np.random.default_rng([7, seeds, arms]).normal(size=(STUDIES, seeds, arms + 1))
    values[..., 1] += EFFECT
    paired_differences = studies.paired_differences(values)
    return float(studies.interval_rejections(paired_differences)[:, 0].mean()), float(
        moderated_rejections(paired_differences)[:, 0].mean()
    )


def main() -> None:
    cells = [(seeds, arms) for seeds in SEEDS for arms in ARMS]
    print("| seeds drawn | " + " | ".join(f"{seeds} seeds, {arms} arms" for seeds, arms in cells) + " |")
    print("|---" * (len(cells) + 1) + "|")
    rows = [
        (sampler.__name__.replace("_", " "), [error_rates(sampler, *cell) for cell in cells])
        for sampler in SAMPLERS
    ]
    rows.append((f"power, effect of {EFFECT:g} standard deviations", [power_rates(*cell) for cell in cells]))
    for name, pairs in rows:
        print(
            f"| {name} | "
            + " | ".join(f"{ordinary:.3f} / {moderated:.3f}" for ordinary, moderated in pairs)
            + " |"
        )


if __name__ == "__main__":
    main()
