"""Format numbers, intervals and p-values as text."""

from collections.abc import Iterable
from math import ceil, floor, log10

from orchestrator.plan.display.format import format_decimals
from orchestrator.report.results.statistics import Estimate, WinShare
from orchestrator.statistics.paired import ZERO_TOLERANCE

MIN_WHOLE_NUMBER = 100
"""Quantities of at least this absolute value are displayed without decimals."""
MAX_ROUNDED_TO_ZERO = 0.0005
"""Smaller absolute values are 0 if displayed with three decimals."""
MIN_DISPLAYED_END = 0.001
"""Interval ends nearer to 0 than this may be displayed as 0 by three decimals, rounded outward."""
ROUNDING_TOLERANCE = 1e-6
"""Tolerance for floating-point errors, in units of the last decimal."""
MAX_SUM_ERROR = 1e-15
"""Greatest error of a sum of numbers near 1 that should be 0.

An end of an interval that excludes 0 is displayed however small it is.
"""
MAX_DECIMALS = 6
"""Maximum number of decimals of an interval; beyond it each number has its own decimals."""
MIN_WIDE_INTERVAL = 10.0
"""Intervals of at least this width are displayed in whole numbers, if a number reaches `MIN_WHOLE_NUMBER`."""


def format_p(p: float, level: float) -> str:
    """Return p with two digits, or with more digits if needed to distinguish it from `level`."""
    for digits in range(2, 7):
        text = f"{p:.{digits}g}"
        if (float(text) <= level) == (p <= level):
            return text
    return f"just {'below' if p <= level else 'above'} {level:g}"


def format_win_share(wins: WinShare | None) -> str:
    """Return e.g. `0.88 [0.47, 1.00]`: the share of seeds in which an arm is better, with its interval."""
    if wins is None:
        return "-"
    ends = "" if wins.low is None or wins.high is None else f" [{wins.low:.2f}, {wins.high:.2f}]"
    return f"{wins.share:.2f}{ends}"


def win_share_title(win_shares: Iterable[WinShare | None]) -> str:
    """Return the title of a column of shares."""
    goals = {win_share.better for win_share in win_shares if win_share is not None}
    return "P(higher)" if goals == {None} else "P(better)"


def format_number(value: float | None, sign: str = "") -> str:
    """Return the number with three decimals, without any from 100 on, and a small one with two digits."""
    if value is None:
        return ""
    return format_decimals(0.0, 3, sign) if abs(value) <= MAX_SUM_ERROR else _format_short(value, sign)


def _format_short(value: float, sign: str) -> str:
    if 0 < abs(value) < MAX_ROUNDED_TO_ZERO:
        return f"{value:{sign}.2g}"
    return format_decimals(value, 3 if abs(value) < MIN_WHOLE_NUMBER else 0, sign)


def choose_text(estimates: Iterable[Estimate], *, intervals: str, mean_text: str, single_seed: str) -> str:
    """Return the text that applies to these estimates.

    Args:
        estimates: The estimates.
        intervals: Text if some estimate has an interval.
        mean_text: Text if some estimate without interval has several seeds, or if there are no estimates.
        single_seed: Text if every estimate has one seed.
    """
    known_estimates = [*estimates]
    if any(estimate.low is not None for estimate in known_estimates):
        return intervals
    return (
        single_seed if known_estimates and all(estimate.n == 1 for estimate in known_estimates) else mean_text
    )


def format_interval(estimate: Estimate, sign: str = "", margin: float | None = None) -> str:
    """Return `0.900 [0.880, 0.920]`, with the ends rounded outward.

    A nonzero end is never displayed as 0 if the other end has the same sign. Rounding never moves an end to
    the other side of `margin`.
    """
    if estimate.low is None or estimate.high is None:
        return format_number(estimate.mean, sign)
    # A value that is tiny relative to the others is a rounding error of 0.
    largest = max(map(abs, (estimate.mean, estimate.low, estimate.high)))
    excludes_zero = estimate.low > 0 or estimate.high < 0
    zero_tolerance = (
        ZERO_TOLERANCE * largest if excludes_zero else max(ZERO_TOLERANCE * largest, MAX_SUM_ERROR)
    )
    ends = [
        0.0 if abs(end) <= zero_tolerance else end for end in (estimate.mean, estimate.low, estimate.high)
    ]
    mean, low, high = ends
    relevant_values = [abs(low), abs(high)] if excludes_zero else []
    if high - low < MAX_ROUNDED_TO_ZERO:
        relevant_values.append(abs(mean))
    smallest_value = min((value for value in relevant_values if value), default=1.0)
    places = 1 - floor(log10(smallest_value)) if smallest_value < MIN_DISPLAYED_END else 3
    if places > MAX_DECIMALS:
        words = [_format_short(end, sign) for end in ends]
    else:
        # The three numbers of an interval have the same number of decimals.
        is_wide = min(map(abs, ends)) >= MIN_WHOLE_NUMBER or (
            high - low >= MIN_WIDE_INTERVAL and smallest_value >= 1
        )
        places = 0 if largest >= MIN_WHOLE_NUMBER and is_wide else places
        if margin is not None:
            while places < MAX_DECIMALS and not _keeps_side_of_margin(low, high, margin, places):
                places += 1
        words = [format_decimals(end, places, sign) for end in (mean, *_round_outward(low, high, places))]
    return "{} [{}, {}]".format(*words)


def _round_outward(low: float, high: float, places: int) -> tuple[float, float]:
    """Return the ends with `places` decimals, rounded so that the interval does not become narrower."""
    scale = 10**places
    return floor(low * scale + ROUNDING_TOLERANCE) / scale, ceil(high * scale - ROUNDING_TOLERANCE) / scale


def _keeps_side_of_margin(low: float, high: float, margin: float, places: int) -> bool:
    """Return whether rounding moves no end to the other side of the margin."""
    pairs = zip(_round_outward(low, high, places), (low, high), strict=True)
    return all((abs(rounded) - margin) * (abs(end) - margin) >= 0 for rounded, end in pairs)
