"""The words of messages: what was given, and for an unknown name the nearest known one and the full list."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import log10
from typing import Any

_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_MARKED = re.compile(r"[\\`*<>&|~$]|(?<![^\W_])_|_(?![^\W_])|!(?=\[)|\](?=[(\[:])")
_MARKED_START = re.compile(r"^(\s*\d*)([#+=.)-])")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, upper and lower case alike; None if none is like it.

    One that is the other's initials is most like it: `lr` and `learning_rate`.
    """
    folded, by_folded = name.casefold(), {entry.casefold(): entry for entry in known}
    short = (each for each in by_folded if _initials(folded) == each or _initials(each) == folded)
    if (found := next(short, None)) is None:
        found = next(iter(difflib.get_close_matches(folded, by_folded, n=1)), None)
    return None if found is None else by_folded[found]


@cache  # messages about many unknown names ask for those of all known ones again and again
def _initials(name: str) -> str | None:
    """`train.learning_rate` as `train.lr`; None for a single word."""
    part, dot, last = name.rpartition(".")
    words = [word for word in re.split(r"[_\W]+", last) if word]
    return f"{part}{dot}{''.join(word[0] for word in words)}" if len(words) > 1 else None


def hint(name: str, known: Iterable[str], likely: str | None = None) -> str:
    """The end of a message about an unknown `name`: "Did you mean 'lr'? Known: beta, lr".

    `likely` is what is asked about where that is known better than from how names are spelt.
    """
    listed = tuple(known)
    near = likely or nearest(name, listed)
    question = f"Did you mean {near!r}? " if near is not None else ""
    return f"{question}Known: {', '.join(listed) or 'none'}"


def amount(number: int, noun: str) -> str:
    """`1 trial`, `1,045 trials`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def listed(words: Sequence[str]) -> str:
    """Return words as in a sentence: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def counted(number: int) -> str:
    """`1,045`; of what nobody could count, and Python would not write, about how much: `10^6020`."""
    return f"{number:,}" if number < 10**18 else f"about 10^{int(log10(number))}"


def printable(text: str) -> str:
    """`text` on one line: what cannot be printed is written as an escape."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def visible(text: str) -> str:
    """`text` with what cannot be printed written as an escape, but for the ends of its lines."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def one_line(text: str) -> str:
    """`text` with a space for every end of a line, whatever character ends it."""
    return " ".join(text.splitlines())


def markdown_text(text: str) -> str:
    """`text` as Markdown that shows it as it stands: no mark-up, no HTML, no formula, no hidden character."""
    return "\n".join(_MARKED_START.sub(r"\1\\\2", markdown_line(line)) for line in visible(text).split("\n"))


def markdown_line(text: str) -> str:
    """The same for text within a line, as in the cell of a table."""
    return _MARKED.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), visible(text))


def shown(value: Any) -> str:
    """How a message quotes what was given: short, in the words of YAML."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Mapping():
            return "an empty mapping" if not value else f"a mapping with {_first(value)}"
        case list() | tuple():
            return "an empty list" if not value else f"a list of {len(value)}"
        case str():
            return f"the text {_cut(value)!r}"
        case _:
            return _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _first(value: Mapping[str, Any]) -> str:
    keys = [_cut(str(key)) for key in value]
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")
