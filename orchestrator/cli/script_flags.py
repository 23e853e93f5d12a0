"""Read the flags and metrics of a training script from its source, without running it."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

METRIC_NAME: Final = re.compile(
    r"^(valid|validation|val|dev|test|eval)[/_]"
    r"(?!(?:\w*_)?(?:batch|data|dir|every|file|folder|frac|freq|fraction|interval|iters|loader|path|percent"
    r"|samples|set|size|split|steps)$)[a-z]\w*$"
)
"""Pattern of metric names that begin with a split other than the training split; `test_size` is none."""
LISTED_CHOICES: Final = re.compile(r"\w+(?:\|\w+)+|\w+(?:, \w+)+\b(?!\|)")
"""Pattern of choices that a help text lists, such as `sgd|adam` or `sgd, adam`."""
SEED_FLAG: Final = "seed"
"""Name of the flag that a sweep sets by itself."""


@dataclass(frozen=True)
class Flag:
    """One flag of an argparse script."""

    name: str
    """Name of the attribute, such as `weight_decay` for `--weight-decay`."""
    default: Any
    """Default value; None if the script sets none, or computes it."""
    choices: tuple[Any, ...] = ()
    is_switch: bool = False
    """Whether the flag takes no value."""
    is_required: bool = False
    is_read_back: bool = True
    """Whether the script reads the default, given as text on the command line, as the same value."""


@dataclass(frozen=True)
class ScriptFlags:
    """Flags and metrics in the source of a script."""

    flags: tuple[Flag, ...]
    metrics: tuple[str, ...]
    """Strings in the script that look like metric names."""
    reports: bool
    """Whether the script writes `metrics.jsonl` or calls `current_trial`."""


def read_script(source: str) -> ScriptFlags:
    """Return the flags that a script adds to its argument parser, and the metrics that it names.

    Raises:
        SyntaxError: The source is not valid Python.
    """
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    flags = [flag for call in calls if _method_name(call) == "add_argument" for flag in _read_flags(call)]
    flags = [flag for flag in flags if flag.name != SEED_FLAG]
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    metrics = dict.fromkeys(text for text in texts if isinstance(text, str) and METRIC_NAME.match(text))
    has_report_file = any(isinstance(text, str) and "metrics.jsonl" in text for text in texts)
    return ScriptFlags(tuple(flags), tuple(metrics), has_report_file or "current_trial" in source)


def _method_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _read_flags(call: ast.Call) -> Iterator[Flag]:
    names = [value for node in call.args if isinstance(value := _literal_value(node), str)]
    long_name = next((name for name in names if name.startswith("--")), None)
    keywords = {keyword.arg: _literal_value(keyword.value) for keyword in call.keywords}
    if long_name is None:
        return  # a positional argument, which cannot be set by a setting
    action = keywords.get("action")
    if action in {"help", "version", "count", "append", "store_const", "append_const"}:
        return
    name = str(keywords.get("dest") or long_name.removeprefix("--").replace("-", "_"))
    is_switch = action in {"store_true", "store_false"}
    default = action == "store_false" if is_switch else keywords.get("default")
    # argparse.BooleanOptionalAction is not a literal.
    is_boolean_action = any(
        keyword.arg == "action" and not isinstance(keyword.value, ast.Constant) for keyword in call.keywords
    )
    choices = keywords.get("choices") or _choices_in_help(keywords.get("help"), default)
    yield Flag(
        name=name,
        default=default,
        choices=tuple(choices) if isinstance(choices, list | tuple) else (),
        is_switch=is_switch or is_boolean_action,
        is_required=bool(keywords.get("required")),
        is_read_back=is_switch or is_boolean_action or _is_read_back(call, default),
    )


def _is_read_back(call: ast.Call, default: Any) -> bool:
    """Return whether the type of a flag probably converts the text of `default` to `default`."""
    kind = next((keyword.value for keyword in call.keywords if keyword.arg == "type"), None)
    if isinstance(default, str | None):
        return True
    return kind is not None and not isinstance(kind, ast.Lambda)


def _choices_in_help(text: Any, default: Any) -> list[str]:
    """Return the choices listed in a help text, e.g. `sgd|adam`, if the default is one of them."""
    lists = (
        [re.split(r"\||, ", match) for match in LISTED_CHOICES.findall(text)] if isinstance(text, str) else []
    )
    return next((choices for choices in lists if default in choices), [])


def _literal_value(node: ast.expr) -> Any:
    """Return the value of a literal; None for any other expression."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
