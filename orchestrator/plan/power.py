"""What the chosen seeds can and cannot show, said before anything runs.

The report compares arms by sign-flip tests on differences paired by seed: with n seeds there are 2^n sign
patterns, so no two-sided p is below 2 / 2^n. Holm's correction multiplies the smallest of m p-values by m.
"""

from itertools import count

from orchestrator.plan.types import ConfirmPlan, Power

ALPHA = 0.05
"""The level the report calls significant."""


def power(confirm: ConfirmPlan, comparisons: int) -> Power:
    """What `confirm` can show when `comparisons` arms are each compared with their baseline."""
    seeds = len(confirm.seeds)
    alone = smallest_p(seeds)
    together = min(1.0, comparisons * alone)
    return Power(seeds, comparisons, alone, together, _sentence(seeds, comparisons, alone, together))


def smallest_p(seeds: int) -> float:
    """The smallest two-sided p a sign-flip test over `seeds` differences can give."""
    return min(1.0, 2.0 ** (1 - seeds))  # 0 for thousands, where 2^seeds is no float


def seeds_needed(comparisons: int) -> int:
    """Fewest seeds with which one of `comparisons` effects can be significant after Holm's correction."""
    return next(seeds for seeds in count(1) if comparisons * smallest_p(seeds) <= ALPHA)


def _sentence(seeds: int, comparisons: int, alone: float, together: float) -> str:
    if not comparisons:
        return f"With no arm beside the baseline, {_counted(seeds, 'seed')} show its spread and no effect."
    given = f"{_counted(seeds, 'seed')} and {_counted(comparisons, 'comparison')}"
    needed = seeds_needed(comparisons)
    holm = f"the smallest p is {alone:.3g}, {together:.3g} after Holm's correction"
    if together > ALPHA:
        return (
            f"With {given} {holm}: no effect, however large, can be significant at {ALPHA}; "
            f"{needed} seeds are the fewest that can show one."
        )
    agreeing = "if all seeds agree in sign"
    spare = f"; {needed} seeds would be the fewest" if needed < seeds else ", and fewer seeds could not"
    return f"With {given} {holm}: an effect can be significant at {ALPHA} {agreeing}{spare}."


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
