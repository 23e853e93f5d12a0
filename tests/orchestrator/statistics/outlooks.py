"""Compare stated chances of a decision with observed frequencies; as a module, print the table.

python -m tests.orchestrator.statistics.outlooks
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from orchestrator.statistics.decision_chance import EFFECT_SPREAD, NO_EFFECT, TIMES, decision_chances
from orchestrator.statistics.paired import PairedEstimate, compare
from orchestrator.statistics.verdicts import verdict

EffectSampler = Callable[[np.random.Generator], float]
"""Function that draws an effect in standard deviations of a paired difference."""
BINS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)


def draw_prior_effect(rng: np.random.Generator) -> float:
    return 0.0 if rng.random() < NO_EFFECT else rng.normal() * EFFECT_SPREAD


def draw_no_effect(rng: np.random.Generator) -> float:
    return 0.0


def draw_unit_effect(rng: np.random.Generator) -> float:
    return 1.0


def compare_values(values: np.ndarray, family: int) -> PairedEstimate:
    return compare({("arm", "x"): dict(enumerate(values.tolist()))}, family=family)["arm", "x"]


def simulate_chances(
    draw_effect: EffectSampler, seeds: int, family: int, experiments: int, margin: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return stated chances and whether more seeds decided undecided experiments.

    Both arrays have one column per number of additional seeds.
    """
    rng = np.random.default_rng([seeds, family])
    stated_chances, is_decided = [], []
    while len(stated_chances) < experiments:
        values = draw_effect(rng) + rng.normal(
            size=seeds + max(int(np.ceil(seeds * factor)) for factor in TIMES)
        )
        scale = 10 ** rng.uniform(-1.5, 1.5)
        comparison = compare_values(values[:seeds] * scale, family)
        if verdict(comparison, margin=margin).kind != "undecided":
            continue
        outlooks = decision_chances(comparison, margin)
        stated_chances.append([outlook.chance for outlook in outlooks])
        later_comparisons = [
            compare_values(values[: seeds + outlook.more] * scale, family) for outlook in outlooks
        ]
        is_decided.append([verdict(later, margin=margin).kind != "undecided" for later in later_comparisons])
    return np.array(stated_chances), np.array(is_decided)


def main() -> None:
    for draw_effect, seeds, family in (
        *((sampler, 4, 1) for sampler in (draw_prior_effect, draw_no_effect, draw_unit_effect)),
        *((sampler, 5, 4) for sampler in (draw_prior_effect, draw_no_effect, draw_unit_effect)),
        *((sampler, 8, 4) for sampler in (draw_prior_effect, draw_no_effect, draw_unit_effect)),
    ):
        stated_chances, is_decided = simulate_chances(draw_effect, seeds, family, 1500)
        print(f"\n{draw_effect.__name__}, {seeds} seeds, {family} comparisons: stated, decided")
        for column, factor in enumerate(TIMES):
            row = [
                f"{factor:g} times: {stated_chances[:, column].mean():.3f} {is_decided[:, column].mean():.3f}"
            ]
            for low, high in pairwise(BINS):
                mask = (stated_chances[:, column] >= low) & (stated_chances[:, column] < high)
                if mask.any():
                    mean_chance, mean_decided = (
                        stated_chances[mask, column].mean(),
                        is_decided[mask, column].mean(),
                    )
                    row.append(f"{mean_chance:.2f} {mean_decided:.2f} ({mask.sum()})")
            print("; ".join(row))


if __name__ == "__main__":
    main()
