"""What may be said of an arm, in one line: better, worse, no difference that matters, or undecided.

All verdicts of a family are read off intervals that hold together, so with probability 1 - level none is
wrong: better and worse where the interval leaves out 0; no difference larger than the margin where it lies
within the margin on both sides, which is two one-sided tests at level / (2 m) each. A verdict is withheld

- below 3 seeds;
- where a seed of the arm or its reference failed, for what failed is not known to be like what finished;
- where a single seed makes it: from 4 seeds on, without any one of them the others must still show the
  difference on their own, at twice the level and uncorrected. With four arms and more this costs no power;
  with one arm it costs some (0.31 of effects of 2 standard deviations found instead of 0.48 at 4 seeds, 0.92
  instead of 0.93 at 8).

Seeds that collapse now and then are beyond any test of means: if one run in five collapses, all of 4 seeds
stand in 41% of cases (`unseen`).
"""

import math
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from orchestrator.statistics.paired import Paired, critical, deviation, p_without

Kind = Literal["better", "worse", "higher", "lower", "no difference", "undecided"]
"""`higher` and `lower` in quantities of which nobody said what is good."""
SEEDS_LEAST = 3
"""Fewer give no verdict."""
ALONE_FROM = 4
"""Seeds from which on each is left out in turn."""
ALONE_FACTOR = 2
"""How much more error than the level the others are allowed."""
MOST_SEEDS_NAMED = 100
"""Beyond this a handful of seeds tells no number."""
MOST_SEEDS = 1000
"""Where looking for a number of seeds ends."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be said, and what would decide it where nothing may."""

    kind: Kind
    text: str
    """E.g. `better`, `no difference larger than 0.01`, `undecided: about 6 more seeds`."""
    more_seeds: int | None = None
    """How many more seeds would decide it if they are like those there are; None if decided, if no number
    does, or if other things stand against it."""
    withheld: str = ""
    """Why the interval alone is not enough here; empty where it is."""


def verdict(
    found: Paired | None,
    *,
    margin: float | None = None,
    better: Literal["max", "min"] | None = None,
    failed: int = 0,
    unit: str = "seed",
) -> Verdict:
    """What may be said of an arm in an outcome.

    `margin`: the least difference that matters, in units of the outcome; without one nothing can be found to
    make no difference. `better`: which values are good. `failed`: seeds of the arm and its reference that
    failed. `unit`: word for an independent observation, seed or repeat.
    """
    if found is None or failed or found.n < SEEDS_LEAST or found.spread is None:
        return _unusable(found, failed, unit)
    if found.shown:
        return _shown(found, margin, better, unit)
    assert found.low is not None
    assert found.high is not None
    if margin is not None and -margin < found.low and found.high < margin:
        return Verdict("no difference", f"no difference larger than {margin:g}")
    more = more_seeds(found, margin)
    return Verdict("undecided", f"undecided{_more(more, unit, ':')}", more)


def _unusable(found: Paired | None, failed: int, unit: str) -> Verdict:
    """Why what there is cannot carry a verdict."""
    if failed:
        return _withheld(f"{failed} {'seed' if failed == 1 else 'seeds'} failed")
    if found is None:
        return _withheld(f"no pairs of {unit}s")
    if found.n < SEEDS_LEAST:
        return _withheld(f"fewer than {SEEDS_LEAST} {unit}s", SEEDS_LEAST - found.n)
    return _withheld("all values are the same, which tells nothing of chance")


def _shown(found: Paired, margin: float | None, better: Literal["max", "min"] | None, unit: str) -> Verdict:
    seed = _decisive_seed(found)
    if seed is None:
        kind = _direction(found.mean, better)
        return Verdict(kind, kind + _small(found, margin))
    more, reason = _more_without(found, seed, margin), f"it hangs on {unit} {seed}"
    return Verdict("undecided", f"undecided: {reason}{_more(more, unit)}", more, reason)


def _withheld(reason: str, more: int | None = None) -> Verdict:
    return Verdict("undecided", f"undecided: {reason}", more, reason)


def _direction(mean: float, better: Literal["max", "min"] | None) -> Kind:
    if better is None:
        return "higher" if mean > 0 else "lower"
    return "better" if (mean > 0) == (better == "max") else "worse"


def _small(found: Paired, margin: float | None) -> str:
    """Shown, and shown to be too small to matter."""
    assert found.low is not None
    assert found.high is not None
    within = margin is not None and max(abs(found.low), abs(found.high)) < margin
    return f", by less than {margin:g}" if within else ""


def _more(seeds: int | None, unit: str, mark: str = ";") -> str:
    if seeds is None:
        return f"{mark} not even 1,000 {unit}s like these would decide it"
    if seeds > MOST_SEEDS_NAMED:
        return f"{mark} more than {MOST_SEEDS_NAMED} more {unit}s"
    return f"{mark} about {seeds} more {unit if seeds == 1 else f'{unit}s'}"


def _decisive_seed(found: Paired) -> int | None:
    """The seed without which the others show least, if that is too little; None if they show enough."""
    if found.n < ALONE_FROM:
        return None
    without = {seed: p for seed in found.by_seed if (p := p_without(found, seed)) is not None}
    worst = max(without, key=lambda seed: without[seed])
    return worst if without[worst] > min(1.0, ALONE_FACTOR * found.level) else None


def _more_without(found: Paired, seed: int, margin: float | None) -> int | None:
    """Further seeds if those to come are like the others."""
    others = {each: value for each, value in found.by_seed.items() if each != seed}
    mean, spread = math.fsum(others.values()) / len(others), deviation(list(others.values()))
    rest = replace(found, by_seed=others, mean=mean, spread=max(spread, found.spread_least) or None)
    more = more_seeds(rest, margin)
    return None if more is None else max(1, more - 1)


def more_seeds(found: Paired, margin: float | None) -> int | None:
    """Further seeds that would decide it if mean and spread stay: the interval then leaves out 0, or lies
    within the margin. None if no number up to 1,000 does."""
    if found.spread is None:
        return None
    for seeds in count(max(SEEDS_LEAST, found.n + 1)):
        if seeds > MOST_SEEDS:
            return None
        half = critical(seeds, found.family, found.level) * found.spread / math.sqrt(seeds)
        if abs(found.mean) > half or (margin is not None and abs(found.mean) + half < margin):
            return seeds - found.n
    return None


def unseen(share: float, seeds: int) -> float:
    """How often none of `seeds` runs collapses although a share of all does."""
    return (1 - share) ** seeds
