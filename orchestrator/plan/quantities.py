"""Large and small numbers in a form that people compare at a glance."""

_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def amount(value: float) -> str:
    """Three significant digits and a decimal prefix: `4.55 G`."""
    size, place = float(value), 0
    while abs(size) >= 999.5 and place < len(_PREFIXES) - 1:
        size, place = size / 1000, place + 1
    return f"{_three(size)} {_PREFIXES[place]}".rstrip()


def bytes_amount(value: float) -> str:
    """Three significant digits and a binary unit: `2.39 GiB`."""
    size, place = float(value), 0
    while abs(size) >= 999.5 and place < len(_BYTES) - 1:
        size, place = size / 1024, place + 1
    return f"{_three(size)} {_BYTES[place]}"


def count(value: int) -> str:
    """`3,954,187`."""
    return f"{value:,}"


def signed(value: int) -> str:
    """`-1,050,112` or `+128`."""
    return f"{value:+,}"


def duration(seconds: float) -> str:
    """`3.2 ms`, `41 s`, `12 min`, `5.5 h`, `3.1 d`."""
    if seconds < 1:
        return f"{_three(seconds * 1000)} ms"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{_three(seconds / size)} {unit}"
    return f"{_three(seconds)} s"


def _three(value: float) -> str:
    """Three significant digits without an exponent."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.3g}"
