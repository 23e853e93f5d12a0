"""How plain YAML words become values: YAML 1.2's core rules, because YAML 1.1's surprise people.

`3e-4` is a number, `no` and `2024-01-01` are texts, `010` is ten, `1_000` is a text. Reader and writer share
the rules, so that what is written reads back as what it was. Quoted words are always texts.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

NULL: Final = "tag:yaml.org,2002:null"
BOOL: Final = "tag:yaml.org,2002:bool"
INT: Final = "tag:yaml.org,2002:int"
FLOAT: Final = "tag:yaml.org,2002:float"
STR: Final = "tag:yaml.org,2002:str"

_RULES: Final = (
    (NULL, re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    (BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    (INT, re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")),
    (
        FLOAT,
        re.compile(
            r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        list("-+.0123456789"),
    ),
)


def resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """The rules as PyYAML wants them: by first character, in order."""
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, firsts in _RULES:
        for first in firsts:
            table.setdefault(first, []).append((tag, pattern))
    return table


def read(word: str) -> bool | int | float | str | None:
    """The value of a word that is not quoted. Raises ValueError on an integer of absurd length."""
    tag = next((tag for tag, pattern, _ in _RULES if pattern.match(word)), STR)
    return value_of(tag, word)


def value_of(tag: str, text: str) -> bool | int | float | str | None:
    """The value of a scalar that `resolvers` gave `tag`. Raises ValueError on an integer of absurd length."""
    match tag:
        case "tag:yaml.org,2002:null":
            return None
        case "tag:yaml.org,2002:bool":
            return text.lower() == "true"
        case "tag:yaml.org,2002:int":
            return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
        case "tag:yaml.org,2002:float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        case _:
            return text


class Dumper(yaml.SafeDumper):
    """Quotes every text that the rules above would read as something else."""

    yaml_implicit_resolvers = resolvers()

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  (a value used twice is written twice)
        """No anchors: a written spec is for people."""
        return True

    def represent_sequence(
        self, tag: str, sequence: Any, flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        """Lists of plain words on one line."""
        plain = not any(isinstance(item, dict | list | tuple) for item in sequence)
        return super().represent_sequence(tag, sequence, True if plain else flow_style)


def assignments(values: Mapping[str, Any]) -> str:
    """Format fields and values for names of arms: `dataset=easy,depth=2`."""
    return ",".join(f"{path}={dump(value, flow=True)}" for path, value in values.items())


def dump(value: Any, *, flow: bool = False) -> str:
    """`value` as YAML, in block style or on one line (`flow`)."""
    text: str = yaml.dump(
        value,
        Dumper=Dumper,
        default_flow_style=flow,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf") if flow else 100,
    )
    return text.removesuffix("\n").removesuffix("\n...") if flow else text
