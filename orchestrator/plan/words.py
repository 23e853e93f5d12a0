"""Values, domains and conditions in the words of a spec, for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces.dimensions import Choice, Dimension, Domain, Fixed, Float, Value
from search_spaces.wording import shown

LISTED_MAX = 8
"""Values that a message lists."""


def value_words(value: Any) -> str:
    """A setting as one would write it: `null`, `true`, `[1, 2]`."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Mapping():
            return ", ".join(f"{key} {value_words(inner)}" for key, inner in value.items())
        case list() | tuple():
            return f"[{', '.join(map(value_words, value))}]"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def among(values: Sequence[Value], word: str = "or") -> str:
    """The values as messages quote them: `1, 2 or 4`; of many the first ones and how many more there are."""
    texts = [shown(value) for value in values]
    if len(texts) > LISTED_MAX:
        texts[LISTED_MAX:] = [f"{len(texts) - LISTED_MAX} more"]
    return f" {word} ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def domain_words(domain: Domain) -> str:
    """What a dimension may be: `one of 1, 2`, `0.001 to 0.1, log`."""
    match domain:
        case Choice(values):
            return f"one of {', '.join(map(value_words, values))}"
        case Fixed(value):
            return f"always {value_words(value)}"
        case _:
            kind, usual = ("", None) if isinstance(domain, Float) else (", whole numbers", 1)
            step = f", step {value_words(domain.step)}" if domain.step != usual else ""
            low, high = value_words(domain.low), value_words(domain.high)
            return f"{low} to {high}{', log' if domain.log else ''}{kind}{step}"


def condition_words(dimension: Dimension) -> str:
    """When a dimension exists: `model.name is a or b`; empty if always."""
    return " and ".join(
        f"{each.path} is {' or '.join(map(value_words, each.values))}" for each in dimension.when
    )
