"""Simulate experiments with stated chances of a decision and their outcomes."""

from collections.abc import Callable

import numpy as np

from orchestrator.statistics.decision_chance import (
    EFFECT_SPREAD,
    NO_EFFECT_PROBABILITY,
    UNIT_MULTIPLES,
    decision_chances,
)
from orchestrator.statistics.paired import PairedEstimate, estimate_differences
from orchestrator.statistics.verdicts import verdict

EffectSampler = Callable[[np.random.Generator], float]
"""Function that draws an effect in standard deviations of a paired difference."""


def draw_prior_effect(rng: np.random.Generator) -> float:
    return 0.0 if rng.random() < NO_EFFECT_PROBABILITY else rng.normal() * EFFECT_SPREAD


def draw_no_effect(rng: np.random.Generator) -> float:
    return 0.0


def compare_values(values: np.ndarray, family: int) -> PairedEstimate:
    return estimate_differences({("arm", "x"): dict(enumerate(values.tolist()))}, family=family)["arm", "x"]


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
            size=seeds + max(int(np.ceil(seeds * factor)) for factor in UNIT_MULTIPLES)
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
