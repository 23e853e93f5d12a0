"""Numbers, intervals and p values as text."""

from collections.abc import Iterable
from math import ceil, floor, log10

from orchestrator.plan.display.format import decimals
from orchestrator.report.results.statistics import Estimate, WinShare
from orchestrator.statistics.paired import ROUNDING

WHOLE_FROM = 100
"""Quantities of at least this are shown without decimals."""
HIDDEN = 0.0005
"""Three decimals show less than this as 0."""
ROUNDED_AWAY = 0.001
"""Three decimals may show an end of an interval that is nearer to 0 than this as 0, rounded outward."""
ERROR = 1e-6
"""In units of the last decimal: what is nearer to it is what floating-point numbers leave."""
NOISE = 1e-15
"""What sums of numbers near 1 leave of 0; what an interval leaves out 0 by is shown however small it is."""
PLACES_MOST = 6
"""Decimals of an interval at most; else each number has its own."""
WIDE = 10.0
"""An interval of at least this width is read in whole numbers where one of them is `WHOLE_FROM` or more."""


def p_words(p: float, level: float) -> str:
    """Two digits, or as many as it takes to show on which side of `level` it is."""
    for digits in range(2, 7):
        text = f"{p:.{digits}g}"
        if (float(text) <= level) == (p <= level):
            return text
    return f"just {'below' if p <= level else 'above'} {level:g}"


def win_words(found: WinShare | None) -> str:
    """`0.88 [0.47, 1.00]`: the share of seeds in which an arm is better, with its interval."""
    if found is None:
        return "-"
    ends = "" if found.low is None or found.high is None else f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.share:.2f}{ends}"


def win_title(found: Iterable[WinShare | None]) -> str:
    """Return the title of a column of such shares."""
    goals = {each.better for each in found if each is not None}
    return "P(higher)" if goals == {None} else "P(better)"


def number_words(value: float | None, sign: str = "") -> str:
    """Three decimals, which a quantity in the hundreds does not need; two digits of what they would hide."""
    if value is None:
        return ""
    return decimals(0.0, 3, sign) if abs(value) <= NOISE else _shortest(value, sign)


def _shortest(value: float, sign: str) -> str:
    if 0 < abs(value) < HIDDEN:
        return f"{value:{sign}.2g}"
    return decimals(value, 3 if abs(value) < WHOLE_FROM else 0, sign)


def worded(found: Iterable[Estimate], *, intervals: str, means: str, one: str) -> str:
    """What may be said of these estimates, so that no words name what none of them has: `intervals` where
    some have one, `means` where some are of several seeds, else `one`. Of none at all: `means`."""
    shown = [*found]
    if any(each.low is not None for each in shown):
        return intervals
    return one if shown and all(each.n == 1 for each in shown) else means


def interval_words(found: Estimate, sign: str = "", margin: float | None = None) -> str:
    """Return `0.900 [0.880, 0.920]`, with the ends rounded outward.

    An end that is not 0 is never shown as 0 where the other has its sign, and none is shown beyond `margin`
    that is within it, or the other way round.
    """
    if found.low is None or found.high is None:
        return number_words(found.mean, sign)
    # What is next to nothing beside the others is what sums leave of 0.
    largest = max(map(abs, (found.mean, found.low, found.high)))
    leaves_out = found.low > 0 or found.high < 0
    nothing = ROUNDING * largest if leaves_out else max(ROUNDING * largest, NOISE)
    ends = [0.0 if abs(end) <= nothing else end for end in (found.mean, found.low, found.high)]
    mean, low, high = ends
    telling = [abs(low), abs(high)] if leaves_out else []
    if high - low < HIDDEN:
        telling.append(abs(mean))
    least = min((value for value in telling if value), default=1.0)
    places = 1 - floor(log10(least)) if least < ROUNDED_AWAY else 3
    if places > PLACES_MOST:
        words = [_shortest(end, sign) for end in ends]
    else:
        # Three numbers of one interval have equally many decimals.
        wide = min(map(abs, ends)) >= WHOLE_FROM or (high - low >= WIDE and least >= 1)
        places = 0 if largest >= WHOLE_FROM and wide else places
        if margin is not None:
            exact = range(places, PLACES_MOST)
            places = next((each for each in exact if _keep_side(low, high, margin, each)), PLACES_MOST)
        words = [decimals(end, places, sign) for end in (mean, *_outward(low, high, places))]
    return "{} [{}, {}]".format(*words)


def _outward(low: float, high: float, places: int) -> tuple[float, float]:
    """Return the ends of an interval with so many decimals, rounded so that it becomes no narrower."""
    scale = 10**places
    return floor(low * scale + ERROR) / scale, ceil(high * scale - ERROR) / scale


def _keep_side(low: float, high: float, margin: float, places: int) -> bool:
    """Whether no end, rounded, is on the other side of the margin; on it is on neither."""
    rounded = _outward(low, high, places)
    return all(
        (abs(shown) - margin) * (abs(end) - margin) >= 0
        for shown, end in zip(rounded, (low, high), strict=True)
    )
