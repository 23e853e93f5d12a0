"""Main effects and interactions where every combination of some components is an arm.

The effect of a component is how much larger the outcome is with it than without it, averaged over all
combinations of the others. The interaction of two is half of how much more one does where the other is there
than where it is not, again averaged over the rest; of three, half of how much that differs between the third
being there and not. So every term is one contrast of all arms' values, seed by seed, with signs that multiply
(Box, Hunter and Hunter, Statistics for Experimenters, chapter 5).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations

from orchestrator.statistics.paired import ROUNDING

Away = frozenset[str]
"""Components that an arm takes away."""
Term = tuple[str, ...]
"""One component for its main effect, several for their interaction."""


def terms(factors: Sequence[str]) -> Iterator[Term]:
    """Every main effect, then every interaction, from two components to all."""
    return chain.from_iterable(combinations(factors, size) for size in range(1, len(factors) + 1))


def contrasts(
    values: Mapping[Away, Mapping[int, float]], factors: Sequence[str]
) -> dict[Term, dict[int, float]]:
    """By term and seed, of every combination's value by seed; seeds that some arm lacks are left out.

    Empty where a combination is missing. Raises ValueError for what is no combination of `factors`.
    """
    wanted = [frozenset(each) for each in ((), *terms(factors))]
    if unknown := set(values) - set(wanted):
        given = sorted(map(sorted, unknown))
        raise ValueError(f"arms must take away some of {', '.join(factors)}, got {given}")
    if set(values) != set(wanted):
        return {}
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in values.values())))
    scale = 2 ** (len(factors) - 1)
    return {
        term: {
            seed: _sum([_sign(term, away) * values[away][seed] for away in wanted]) / scale for seed in seeds
        }
        for term in terms(factors)
        if seeds
    }


def _sum(values: Sequence[float]) -> float:
    """0 where rounding of floats alone keeps them from it."""
    found = math.fsum(values)
    return 0.0 if abs(found) <= ROUNDING * max(map(abs, values)) else found


def _sign(term: Term, away: Away) -> int:
    return -1 if len(away & set(term)) % 2 else 1
