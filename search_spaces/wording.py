"""Format values and names for messages, and suggest the nearest known name for an unknown one."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import log10
from typing import Any

_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_MARKUP = re.compile(r"[\\`*<>&|~$]|(?<![^\W_])_|_(?![^\W_])|!(?=\[)|\](?=[(\[:])")
_MARKUP_AT_START = re.compile(r"^(\s*\d*)([#+=.)-])")


def nearest(name: str, known_names: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`, ignoring case; None if none is similar.

    A name whose initials equal the other name is the most similar: `lr` and `learning_rate`.
    """
    folded_name, by_folded = name.casefold(), {entry.casefold(): entry for entry in known_names}
    abbreviations = (
        candidate
        for candidate in by_folded
        if _initials(folded_name) == candidate or _initials(candidate) == folded_name
    )
    if (match := next(abbreviations, None)) is None:
        match = next(iter(difflib.get_close_matches(folded_name, by_folded, n=1)), None)
    return None if match is None else by_folded[match]


@cache  # each message about an unknown name needs the initials of all known names
def _initials(name: str) -> str | None:
    """Return the name with its last part abbreviated, e.g. `train.lr` for `train.learning_rate`.

    None if the last part is one word.
    """
    part, dot, suffix = name.rpartition(".")
    words = [word for word in re.split(r"[_\W]+", suffix) if word]
    return f"{part}{dot}{''.join(word[0] for word in words)}" if len(words) > 1 else None


def hint(name: str, known_names: Iterable[str], suggested_name: str | None = None) -> str:
    """Return the end of a message about an unknown name: "Did you mean 'lr'? Known: beta, lr".

    Args:
        name: The unknown name.
        known_names: All known names.
        suggested_name: Name to suggest; by default the most similar known name.
    """
    listed = tuple(known_names)
    similar_names = suggested_name or nearest(name, listed)
    question = f"Did you mean {similar_names!r}? " if similar_names is not None else ""
    return f"{question}Known: {', '.join(listed) or 'none'}"


def amount(number: int, noun: str) -> str:
    """Return `number` followed by `noun` in singular or plural: `1 trial`, `1,045 trials`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def join_words(words: Sequence[str]) -> str:
    """Join words for use in a sentence: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def format_count(number: int) -> str:
    """Return a number as text: `1,045`, or `about 10^6020` from 10^18 on."""
    return f"{number:,}" if number < 10**18 else f"about 10^{int(log10(number))}"


def escape_to_line(text: str) -> str:
    """Return `text` on one line, with unprintable characters as escapes."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def escape_unprintable(text: str) -> str:
    """Return `text` with unprintable characters as escapes; line ends are preserved."""
    return text if text.isprintable() else "\n".join(map(escape_to_line, text.split("\n")))


def one_line(text: str) -> str:
    """Return `text` with each line break replaced by a space."""
    return " ".join(text.splitlines())


def markdown_text(text: str) -> str:
    """Return `text` escaped for Markdown: no mark-up, HTML, formulas or invisible characters."""
    return "\n".join(
        _MARKUP_AT_START.sub(r"\1\\\2", markdown_line(line)) for line in escape_unprintable(text).split("\n")
    )


def markdown_line(text: str) -> str:
    """Return text escaped for a single line of Markdown, such as a table cell."""
    return _MARKUP.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), escape_unprintable(text))


def format_value(value: Any) -> str:
    """Return a short description of a value for messages, in YAML notation."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Mapping():
            return "an empty mapping" if not value else f"a mapping with {_first_keys(value)}"
        case list() | tuple():
            return "an empty list" if not value else f"a list of {len(value)}"
        case str():
            return f"the text {_truncate(value)!r}"
        case _:
            return _truncate(str(value))


def _truncate(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _first_keys(value: Mapping[str, Any]) -> str:
    keys = [_truncate(str(key)) for key in value]
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")
