"""Main effects and interactions of components, if every combination of them is an arm.

The main effect of a component is the increase of the outcome when it is present, averaged over all
combinations of the other components. The interaction of two components is half the difference between the
effect of one with and without the other, averaged over the rest. For three components it is half the
difference of the two-way interaction with and without the third. Each term is therefore one contrast of the
values of all arms, computed per seed, whose signs are products (Box, Hunter and Hunter, Statistics for
Experimenters, chapter 5).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations

from orchestrator.statistics.paired import ZERO_TOLERANCE

RemovedComponents = frozenset[str]
"""Components that an arm removes."""
Term = tuple[str, ...]
"""One component for its main effect, or several for their interaction."""


def effect_terms(factors: Sequence[str]) -> Iterator[Term]:
    """Yield every main effect, then every interaction, from two components to all."""
    return chain.from_iterable(combinations(factors, size) for size in range(1, len(factors) + 1))


def effect_contrasts(
    values: Mapping[RemovedComponents, Mapping[int, float]], factors: Sequence[str]
) -> dict[Term, dict[int, float]]:
    """Return every main effect and interaction, by term and seed.

    Args:
        values: By combination of removed components, the value of each seed.
        factors: All components.

    Returns:
        Contrasts for the seeds that all arms have; empty if a combination is missing.

    Raises:
        ValueError: A key of `values` is not a combination of `factors`.
    """
    cells = [frozenset(term) for term in ((), *effect_terms(factors))]
    if unknown_cells := set(values) - set(cells):
        unknown_arms = sorted(map(sorted, unknown_cells))
        raise ValueError(f"arms must remove some of {', '.join(factors)}, got {unknown_arms}")
    if set(values) != set(cells):
        return {}
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in values.values())))
    scale = 2 ** (len(factors) - 1)
    return {
        term: {
            seed: _rounded_sum([_contrast_sign(term, removed) * values[removed][seed] for removed in cells])
            / scale
            for seed in seeds
        }
        for term in effect_terms(factors)
        if seeds
    }


def _rounded_sum(values: Sequence[float]) -> float:
    """Return the sum of `values`; 0 if it differs from 0 only by rounding."""
    total = math.fsum(values)
    return 0.0 if abs(total) <= ZERO_TOLERANCE * max(map(abs, values)) else total


def _contrast_sign(term: Term, removed: RemovedComponents) -> int:
    return -1 if len(removed & set(term)) % 2 else 1
