"""Verdict of an arm in one line: better, worse, no difference that matters, or undecided.

All verdicts of a family follow from intervals that hold simultaneously, so with probability 1 - level none is
wrong. An arm is better or worse if the interval excludes 0. There is no difference larger than the margin if
the interval is within the margin on both sides, which is two one-sided tests at level / (2 m) each. A verdict
is withheld

- below 3 seeds;
- if a seed of the arm or its reference failed, because failed seeds may differ from finished ones. Exception:
  every value that the seed could have had gives the same verdict (`statistics.missing`);
- if it depends on a single seed. With at least 4 seeds, the difference must remain when any one seed is
  removed, at twice the level and uncorrected. With four or more arms this costs no power. With one arm it
  costs some (0.31 instead of 0.48 of effects of 2 standard deviations detected at 4 seeds, 0.92 instead of
  0.93 at 8).

No test of means is robust to seeds that collapse occasionally: if one run in five collapses, 4 seeds include
no collapsed run in 41% of cases (`no_collapse_probability`).
"""

from dataclasses import dataclass
from typing import Literal

from orchestrator.statistics.paired import PairedEstimate, p_without_seed
from search_spaces.wording import amount

Kind = Literal["better", "worse", "higher", "lower", "no difference", "undecided"]
"""Kind of a verdict; `higher` and `lower` are for outcomes without a declared better direction."""
MIN_VERDICT_SEEDS = 3
"""Minimum number of seeds for a verdict."""
MIN_REMOVAL_SEEDS = 4
"""Number of seeds from which on each seed is left out in turn."""
REMOVAL_LEVEL_FACTOR = 2
"""Level of the test without one seed, as a multiple of the level."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict on an arm in an outcome."""

    kind: Kind
    text: str
    """Text for reports, e.g. `better`, `no difference larger than 0.01` or `undecided: depends on seed 3`."""
    withheld: str = ""
    """Reason why the interval alone is not sufficient; empty if it is."""


def verdict(
    paired: PairedEstimate | None,
    *,
    margin: float | None = None,
    better: Literal["max", "min"] | None = None,
    num_failed: int = 0,
    unit: str = "seed",
) -> Verdict:
    """Return the verdict on an arm in an outcome.

    Args:
        paired: Comparison of the arm with its reference; None without pairs.
        margin: Least difference that matters, in units of the outcome; required for a verdict of no
            difference.
        better: Whether large or small values are good; None if unknown.
        num_failed: Number of failed seeds of the arm and its reference.
        unit: Word for an independent observation: seed or repeat.
    """
    if paired is not None and paired.num_missing:
        return _verdict_despite_failures(paired, margin, better, unit)
    if paired is None or num_failed or paired.n < MIN_VERDICT_SEEDS or paired.spread is None:
        return _verdict_without_interval(paired, num_failed, unit)
    if paired.excludes_zero:
        return _verdict_of_interval(paired, margin, better, unit)
    assert paired.low is not None
    assert paired.high is not None
    if margin is not None and -margin < paired.low and paired.high < margin:
        return Verdict("no difference", f"no difference larger than {margin:g}")
    return Verdict("undecided", "undecided")


def _verdict_despite_failures(
    paired: PairedEstimate, margin: float | None, better: Literal["max", "min"] | None, unit: str
) -> Verdict:
    """Return the verdict if it is the same for every possible value of the failed units."""
    kind: Kind = _direction(paired.mean, better) if paired.excludes_zero else "no difference"
    text = (
        kind + _small_effect_text(paired, margin)
        if paired.excludes_zero
        else f"no difference larger than {margin:g}"
    )
    return Verdict(kind, f"{text}, for any value of {amount(paired.num_missing, f'failed {unit}')}")


def _verdict_without_interval(paired: PairedEstimate | None, num_failed: int, unit: str) -> Verdict:
    """Return an undecided verdict with the reason why there is no interval."""
    if num_failed:
        return _withheld_verdict(f"{num_failed} {'seed' if num_failed == 1 else 'seeds'} failed")
    if paired is None:
        return _withheld_verdict(f"no pairs of {unit}s")
    if paired.n < MIN_VERDICT_SEEDS:
        return _withheld_verdict(f"fewer than {MIN_VERDICT_SEEDS} {unit}s")
    return _withheld_verdict("all values are equal and contain no information about chance")


def _verdict_of_interval(
    paired: PairedEstimate, margin: float | None, better: Literal["max", "min"] | None, unit: str
) -> Verdict:
    seed = _decisive_seed(paired)
    if seed is None:
        kind = _direction(paired.mean, better)
        return Verdict(kind, kind + _small_effect_text(paired, margin))
    return _withheld_verdict(f"it depends on {unit} {seed}")


def _withheld_verdict(reason: str) -> Verdict:
    return Verdict("undecided", f"undecided: {reason}", reason)


def _direction(mean: float, better: Literal["max", "min"] | None) -> Kind:
    if better is None:
        return "higher" if mean > 0 else "lower"
    return "better" if (mean > 0) == (better == "max") else "worse"


def _small_effect_text(paired: PairedEstimate, margin: float | None) -> str:
    """Return a remark on a difference that is real but below the margin; empty for other differences."""
    assert paired.low is not None
    assert paired.high is not None
    is_within_margin = margin is not None and max(abs(paired.low), abs(paired.high)) < margin
    return f", by less than {margin:g}" if is_within_margin else ""


def _decisive_seed(paired: PairedEstimate) -> int | None:
    """Return the seed whose removal makes p largest, if p is then too large; else None."""
    if paired.n < MIN_REMOVAL_SEEDS:
        return None
    p_by_seed = {seed: p for seed in paired.differences if (p := p_without_seed(paired, seed)) is not None}
    worst = max(p_by_seed, key=lambda seed: p_by_seed[seed])
    return worst if p_by_seed[worst] > min(1.0, REMOVAL_LEVEL_FACTOR * paired.level) else None


def no_collapse_probability(share: float, seeds: int) -> float:
    """Return the probability that none of `seeds` runs collapses, if a share of all runs does."""
    return (1 - share) ** seeds
