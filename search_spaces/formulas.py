"""Formulas for conditions between fields: `width % heads == 0`, `min(a, b) >= 2 or mode == 'fast'`.

The text is parsed as a Python expression. This module allows only a few node types and evaluates them itself,
so no user code is executed. Fields are written as paths. In backticks a path may contain any character: ``
`weight-decay` <= 0.1 ``.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from search_spaces.paths import MISSING, path_problem

MAX_CHARACTERS: Final = 1000
"""Maximum length of a formula."""
MAX_BITS: Final = 1024
"""Maximum size of an integer power in bits; larger powers count as infinite."""
_TOKEN: Final = re.compile(
    r"`(?P<quoted>[^`]*)`"
    r"|(?P<text>'[^'\\]*'|\"[^\"\\]*\")"
    r"|(?P<number>0[xo][0-9a-fA-F]+(?!\w)|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?(?!\w))"
    r"|(?P<path>[^\W\d]\w*(?:\.\w+)*)"
    r"|(?P<rest>.)",
    re.DOTALL,
)
_WORDS: Final = frozenset({"and", "or", "not", "in"})
_CONSTANTS: Final = {"true": "True", "false": "False", "null": "None"} | {
    item: item for item in ("True", "False", "None")
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {"abs": abs, "max": max, "min": min}
_ALLOWED: Final = (
    "fields, numbers, quoted texts and lists with comparisons, and, or, not, in, + - * / // % **, abs, min, "
    "max (put field paths that are not identifiers in backticks)"
)


class BadFormula(ValueError):
    """Error for a text that is not a valid condition between fields; the message states the reason."""


@dataclass(frozen=True, slots=True)
class ParsedFormula:
    """A parsed formula."""

    tree: ast.expr
    fields: Mapping[str, str]
    """Field paths by their names in the tree."""


def path_needs_quotes(path: str) -> bool:
    """Return whether `path` needs backticks in a formula."""
    match = _TOKEN.fullmatch(path)
    return match is None or match["path"] is None or path in _WORDS or path in _CONSTANTS


@lru_cache(maxsize=1024)
def parse_formula(text: str) -> ParsedFormula:
    """Return the parsed formula; raise `BadFormula` if the text is not valid."""
    if len(text) > MAX_CHARACTERS:
        raise BadFormula(f"must have at most {MAX_CHARACTERS} characters, got {len(text)}")
    fields: dict[str, str] = {}
    names: dict[str, str] = {}

    def name_of(path: str) -> str:
        if problem := path_problem(path):
            raise BadFormula(problem)
        name = names.setdefault(path, f"field{len(names)}")
        fields[name] = path
        return f" {name} "

    def translate_token(match: re.Match[str]) -> str:
        if (quoted := match["quoted"]) is not None:
            return name_of(quoted)
        if (number := match["number"]) is not None:
            return number.lstrip("0") or "0" if number.isdecimal() else number
        word = match["path"]
        is_call = text[match.end() :].lstrip().startswith("(")
        if word is None or word in _WORDS or (is_call and word in _FUNCTIONS):
            return match[0]
        return _CONSTANTS[word] if word in _CONSTANTS else name_of(word)

    try:
        tree = ast.parse(_TOKEN.sub(translate_token, text).strip(), mode="eval").body
        _check(tree)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise BadFormula(f"must be a condition of {_ALLOWED}, got {text!r}") from error
    if not isinstance(tree, ast.Compare | ast.BoolOp) and not _is_not(tree):
        raise BadFormula(f"must compare something, e.g. 'width % heads == 0', got {text!r}")
    if not fields:
        raise BadFormula(f"must name a field, got {text!r}")
    return ParsedFormula(tree, fields)


def holds(text: str, value_of: Callable[[str], Any]) -> bool:
    """Return whether a formula holds.

    A formula holds if one of its fields is missing, or is null instead of a number. It does not hold if its
    value is undefined, such as after a division by zero.

    Args:
        text: The formula.
        value_of: Returns the value of the field at a path, or `MISSING`.

    Raises:
        BadFormula: The formula is not valid.
        TypeError: Operands have unsuitable types.
    """
    formula = parse_formula(text)
    values = {name: value_of(path) for name, path in formula.fields.items()}
    if MISSING in values.values():
        return True
    try:
        return bool(_value(formula.tree, values))
    except (ZeroDivisionError, OverflowError, ValueError):
        return False
    except TypeError as error:
        if None in values.values():
            return True
        shown_fields = ", ".join(f"{path} = {values[name]!r}" for name, path in formula.fields.items())
        raise TypeError(f"{text} cannot be evaluated, got {shown_fields}") from error


def _is_not(tree: ast.expr) -> bool:
    return isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)


def _check(tree: ast.expr) -> None:
    """Raise SyntaxError if the tree has a node that is not allowed."""
    match tree:
        case ast.Constant(value=float() as number):
            if not math.isfinite(number):
                raise SyntaxError
            return
        case ast.Constant(value=bool() | int() | str() | None):
            return
        case ast.Name(id=name) if name.startswith("field"):
            return
        case ast.Compare(left=left, ops=operators, comparators=others):
            if not all(type(operation) in _COMPARE for operation in operators):
                raise SyntaxError
            parts = [left, *others]
        case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
            pass
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=operand):
            parts = [operand]
        case ast.BinOp(left=left, op=op, right=right_value) if type(op) in _CALCULATE:
            parts = [left, right_value]
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _FUNCTIONS and parts:
            pass
        case _:
            raise SyntaxError
    for part in parts:
        _check(part)


def _value(tree: ast.expr, values: Mapping[str, Any]) -> Any:  # noqa: PLR0911 - one for each kind
    match tree:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, values) for part in parts]
        case ast.BoolOp(op=op, values=parts):
            combine = all if isinstance(op, ast.And) else any
            return combine(_value(part, values) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, values)
        case ast.UnaryOp(op=op, operand=operand):
            number = _number(_value(operand, values))
            return -number if isinstance(op, ast.USub) else number
        case ast.BinOp(left=left, op=op, right=right_value):
            return _CALCULATE[type(op)](_number(_value(left, values)), _number(_value(right_value, values)))
        case ast.Call(func=ast.Name(id=name), args=parts):
            return _FUNCTIONS[name](*(_number(_value(part, values)) for part in parts))
        case ast.Compare(left=left, ops=operators, comparators=others):
            first = _value(left, values)
            for sign, second in zip(operators, others, strict=True):
                if not _COMPARE[type(sign)](first, right_value := _value(second, values)):
                    return False
                first = right_value
            return True
    raise AssertionError("a formula must be validated before it is evaluated")


def _number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise TypeError(f"must be a number, got {value!r}")
    return value


def _bits(base: int, exponent: int) -> int:
    return base.bit_length() * exponent


def _power(base: float, exponent: float) -> float:
    if isinstance(base, int) and isinstance(exponent, int) and 0 <= _bits(base, exponent) <= MAX_BITS:
        power: int = base**exponent
        return power
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 else math.inf


def _are_equal(first: Any, second: Any) -> bool:
    """Return whether two values are equal; unlike in Python, True does not equal 1."""
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


_CALCULATE: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_COMPARE: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: _are_equal,
    ast.NotEq: lambda first, second: not _are_equal(first, second),
    ast.GtE: operator.ge,
    ast.Gt: operator.gt,
    ast.In: lambda item, values: any(_are_equal(item, value) for value in values),
    ast.NotIn: lambda item, values: not any(_are_equal(item, value) for value in values),
}
