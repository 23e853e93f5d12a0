"""Convert unquoted YAML words to values by the core rules of YAML 1.2 instead of those of YAML 1.1.

`3e-4` is a number, `no` and `2024-01-01` are texts, `010` is ten, `1_000` is a text. Reader and writer share
the rules, so that written values are read back unchanged. Quoted words are always texts.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import yaml

NULL_TAG: Final = "tag:yaml.org,2002:null"
BOOL_TAG: Final = "tag:yaml.org,2002:bool"
INT_TAG: Final = "tag:yaml.org,2002:int"
FLOAT_TAG: Final = "tag:yaml.org,2002:float"
STR_TAG: Final = "tag:yaml.org,2002:str"
MERGE_TAG: Final = "tag:yaml.org,2002:merge"
Scalar = bool | int | float | str | None

RESOLVERS: Final[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}
"""Tags and patterns of unquoted words in the form that PyYAML needs: by first character, in order."""
for _tag, _pattern, _firsts in (
    (NULL_TAG, r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    (BOOL_TAG, r"(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    (INT_TAG, r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    (FLOAT_TAG, r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
    (FLOAT_TAG, r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", "-+."),
    (MERGE_TAG, r"<<$", "<"),
):
    for _first in _firsts:
        RESOLVERS.setdefault(_first, []).append((_tag, re.compile(_pattern)))

CONVERTERS: Final[dict[str, Callable[[str], Scalar]]] = {
    NULL_TAG: lambda text: (None, None, None)[("", "~", "null").index(text.lower())],
    BOOL_TAG: lambda text: bool(("false", "true").index(text.lower())),
    INT_TAG: lambda text: int(text, 0 if text.startswith(("0o", "0x")) else 10),
    FLOAT_TAG: lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
    STR_TAG: str,
    MERGE_TAG: str,
}
"""Function by tag that returns the value of a scalar; texts that are no value of the tag, and integers with
too many digits, raise `ValueError`.
"""


def read(word: str) -> Scalar:
    """Return the value of an unquoted word.

    Raises:
        ValueError: For an integer with too many digits.
    """
    rules = RESOLVERS.get(word[:1], [])
    return CONVERTERS[next((tag for tag, pattern in rules if pattern.match(word)), STR_TAG)](word)


class Dumper(yaml.SafeDumper):
    """Dumper that quotes every text that the rules above would read as another value."""

    yaml_implicit_resolvers = RESOLVERS

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  (a value used twice is written twice)
        """Return True to write no anchors, so that a written spec is easy to read."""
        return True

    def represent_sequence(
        self, tag: str, sequence: Any, flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        """Represent a list of scalars on one line."""
        is_plain = not any(isinstance(item, dict | list | tuple) for item in sequence)
        return super().represent_sequence(tag, sequence, True if is_plain else flow_style)


def assignments(values: Mapping[str, Any]) -> str:
    """Return fields and values for names of arms: `dataset=easy,depth=2`."""
    return ",".join(f"{path}={dump(value, flow=True)}" for path, value in values.items())


def dump(value: Any, *, flow: bool = False) -> str:
    """Return `value` as YAML, in block style or on one line (`flow`)."""
    style: dict[str, Any] = {"default_flow_style": flow, "width": float("inf") if flow else 100}
    text: str = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, **style)
    return text.removesuffix("\n").removesuffix("\n...") if flow else text
