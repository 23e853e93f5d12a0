"""Format values, domains, conditions and quantities for people, in the notation of a spec."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces.dimensions import Choice, Dimension, Domain, Fixed, Float, Powers, Value, max_value
from search_spaces.wording import format_value

MAX_LISTED_VALUES = 8
"""Maximum number of values in a message."""


def value_words(value: Any) -> str:
    """Return a value in YAML notation: `null`, `true`, `[1, 2]`.

    A text is quoted if YAML would not parse it as a text.
    """
    match value:
        case None | bool():
            return "null" if value is None else str(value).lower()
        case Mapping():
            return ", ".join(f"{key} {value_words(inner)}" for key, inner in value.items())
        case list() | tuple():
            return f"[{', '.join(map(value_words, value))}]"
        case float():
            return f"{value:g}"
        case str():
            return repr(value) if _needs_quotes(value) else value
        case _:
            return str(value)


def nested_value_words(value: Any) -> str:
    """Format a value like `value_words`, but with braces around mappings: `{name: adam, lr: 0.1}`."""
    match value:
        case Mapping():
            return f"{{{', '.join(f'{key}: {nested_value_words(inner)}' for key, inner in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(nested_value_words, value))}]"
        case _:
            return value_words(value)


def setting_words(settings: Mapping[str, Any], digits: int | None = None, mark: str = ", ") -> str:
    """Return fields with their values: `train.lr=0.1, model.gate=true`.

    Args:
        settings: Values by path.
        digits: Significant digits of floats; None for all digits.
        mark: Text between fields.
    """
    return mark.join(f"{path}={_setting(value, digits)}" for path, value in settings.items())


def _setting(value: Any, digits: int | None) -> str:
    if not isinstance(value, float):
        return nested_value_words(value)
    return str(value) if digits is None else f"{value:.{digits}g}"


def change_words(old: Any, new: Any) -> tuple[str, str]:
    """Return both values in the notation of `value_words`, with all digits if they would look equal."""
    words = value_words(old), value_words(new)
    return (repr(old), repr(new)) if words[0] == words[1] and old != new else words


def _needs_quotes(text: str) -> bool:
    """Return whether YAML would parse the unquoted `text` as a number, null or boolean."""
    if text in {"", "~", "null", "true", "false"}:
        return True
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def quote_values(values: Sequence[Value], word: str = "or") -> str:
    """Return the values as messages quote them: `1, 2 or 4`; a long list is shortened to `... or 5 more`."""
    texts = [format_value(value) for value in values]
    if len(texts) > MAX_LISTED_VALUES:
        texts[MAX_LISTED_VALUES:] = [f"{len(texts) - MAX_LISTED_VALUES} more"]
    return f" {word} ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def domain_words(domain: Domain) -> str:
    """Return a domain in words: `one of 1, 2`, `0.001 to 0.1, log`.

    If the steps do not reach the high end of a range, the last step is displayed instead.
    """
    match domain:
        case Choice(values):
            return f"one of {', '.join(map(nested_value_words, values))}"
        case Fixed(value):
            return f"always {nested_value_words(value)}"
        case Powers():
            return f"{value_words(domain.low)} to {value_words(domain.high)}, step x{domain.factor}"
        case _:
            kind, usual = ("", None) if isinstance(domain, Float) else (", whole numbers", 1)
            step = f", step {value_words(domain.step)}" if domain.step != usual else ""
            low, high = value_words(domain.low), value_words(max_value(domain))
            return f"{low} to {high}{', log' if domain.log else ''}{kind}{step}"


def condition_words(dimension: Dimension) -> str:
    """Return the conditions of a dimension: `model.name is a or b`; empty if there are none."""
    return " and ".join(
        f"{condition.path} is {' or '.join(map(value_words, condition.values))}"
        for condition in dimension.when
    )


_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_amount(value: float) -> str:
    """Return a number with three significant digits and a decimal prefix: `4.55 G`."""
    size, place = float(value), 0
    while abs(size) >= 999.5 and place < len(_PREFIXES) - 1:
        size, place = size / 1000, place + 1
    return f"{_three_digits(size)} {_PREFIXES[place]}".rstrip()


def bytes_amount(value: float) -> str:
    """Return bytes with three significant digits and a binary unit: `2.39 GiB`."""
    size, place = float(value), 0
    while abs(size) >= 999.5 and place < len(_BYTES) - 1:
        size, place = size / 1024, place + 1
    return f"{_three_digits(size)} {_BYTES[place]}"


def count(value: int) -> str:
    """Return an integer with thousands separators: `3,954,187`."""
    return f"{value:,}"


EXPONENT_FROM = 1e12
"""Numbers from here on are displayed in exponential notation."""


def format_decimals(value: float, places: int, sign: str = "") -> str:
    """Return a number with `places` decimals: `0.250`, or `+0.250` with the sign `+`.

    Very large numbers have two digits and an exponent: `7.5e+75`. A value that rounds to zero has no sign.
    """
    if abs(value) >= EXPONENT_FROM:
        return f"{value:{sign}.4g}"
    text = f"{value:{sign}.{places}f}"
    return text.lstrip("+-") if float(text) == 0 else text


def format_signed(value: int) -> str:
    """Return an integer with sign and thousands separators: `-1,050,112` or `+128`."""
    return f"{value:+,}"


def format_duration(seconds: float) -> str:
    """Return a duration with its unit: `3.2 ms`, `41 s`, `12 min`, `5.5 h`, `3.1 d`."""
    if seconds < 1:
        return f"{_three_digits(seconds * 1000)} ms"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds)} s"


def _three_digits(value: float) -> str:
    """Return a number with three significant digits and no exponent."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.3g}"
