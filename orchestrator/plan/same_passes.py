"""When two passes are the same, up to the order of their sums."""

from math import isclose

from orchestrator.plan.probed_model import BackwardPass

ROUNDING = 1e-4
"""Relative difference up to which losses and gradients may be the same sums in another order."""


def close(before: float, after: float) -> bool:
    """Whether two losses, costs or measured values differ by no more than that."""
    return isclose(before, after, rel_tol=ROUNDING)


def same_gradient(before: BackwardPass, after: BackwardPass) -> bool:
    """Whether two gradients differ by no more than the order of sums explains."""
    reached, also = ([each for each in one.parts if any(each[1:])] for one in (before, after))
    if [name for name, *_ in reached] != [name for name, *_ in also]:
        return False
    limit = ROUNDING * max(before.norm, after.norm)
    pairs = zip(reached, also, strict=True)
    return all(
        abs(old - new) <= limit
        for (_, *one), (_, *other) in pairs
        for old, new in zip(one, other, strict=True)
    )
