"""Define the types of the values in a spec, with the wording of their error messages.

A message reads "must be <words>, got <value>". The JSON Schema contains the same limits.
"""

import ast
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path as File
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from orchestrator.identity import canonical, derive_seed
from search_spaces.dimensions import Constraint, Dimension, Formula, Predicate, Rule, equality_key
from search_spaces.formulas import BadFormula, ParsedFormula, parse_formula
from search_spaces.parse import FACTOR_PATTERN, FORMS, parse_space, render_space
from search_spaces.paths import ROOTS, built_in_problem, path_problem
from search_spaces.wording import format_value

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
PATH_PATTERN: Final = r"^(task|model|train)(\.[A-Za-z_][A-Za-z0-9_]*)+$"
CUSTOM_PATH_PATTERN: Final = r"^\S(.*\S)?$"
ARM_PATTERN: Final = r"""^[^\s\[\],'"`-]([^\[\],'"`]{0,62}[^\s\[\],'"`])?$"""
"""Pattern of the name of an arm; some characters have a meaning next to a name.

Brackets enclose the cell of a grid, commas separate names in a list, and quotes enclose names.
"""
SCOPE_PATTERN: Final = r"^(last|best|mean-of-last-[1-9][0-9]{0,8})$"
FROM_KEY: Final = "from"
RESULT_KEY: Final = "found"
"""Keys of a point from another sweep: the name of the sweep, and its best values by arm."""
IS_CUSTOM_KEY: Final = "own"
"""Key of the validation context that states whether the spec names a custom trainable."""
_DOTTED_NAME: Final = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
TRAINABLE_PATTERN: Final = rf"^({_DOTTED_NAME}:{_DOTTED_NAME}|[^:]+\.py( +[^\s:]+)*)$"
_TRAINABLE: Final = re.compile(TRAINABLE_PATTERN)
_OPERATORS: Final[Mapping[type[ast.cmpop], str]] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.GtE: ">=",
    ast.Gt: ">",
}
_MIRRORED_OPERATORS: Final = str.maketrans("<>", "><")
"""Translation that exchanges the sides of a comparison operator."""
FAULTS: Final = "faults"
"""Error type that contains several faults under `ctx`: pairs of keys and message."""


def refusal(message: str) -> PydanticCustomError:
    """Return a pydantic error with `message`, in which braces are literal."""
    return PydanticCustomError("refusal", "{message}", {"message": message})


def described_as(words: str) -> WrapValidator:
    """Return a validator that replaces any error by "must be `words`, got ...".

    If a value is too large, the message states the maximum instead of `words`.
    """

    def reword(value: Any, validate: Callable[[Any], Any]) -> Any:
        try:
            return validate(value)
        except (ValidationError, PydanticCustomError) as error:
            max_length = _max_value(error)
            limit = words if max_length is None else f"at most {max_length:,}"
            raise refusal(f"must be {limit}, got {format_value(value)}") from error

    return WrapValidator(reword)


def _max_value(error: ValidationError | PydanticCustomError) -> int | None:
    """Return the maximum value if exceeding it is the only error; else None."""
    details = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else None
    return int(details["ctx"]["le"]) if details is not None and details["type"] == "less_than_equal" else None


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def repetition_message(values: Iterable[Any]) -> str | None:
    """Return the error message for a list that contains a value twice; None if it does not."""
    seen_values: set[Hashable] = set()
    double = []
    for value in values:
        key = equality_key(value)
        if key in seen_values:
            double.append(format_value(str(value) if isinstance(value, Rule) else value))
        seen_values.add(key)
    if not double:
        return None
    return f"must not contain duplicates, got {', '.join(dict.fromkeys(double))} more than once"


def _require_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if (problem := repetition_message(values)) is not None:
        raise refusal(problem)
    return values


def _json(value: Any) -> Any:
    try:
        canonical(value)
    except (TypeError, ValueError) as error:
        requirement = "must be finite numbers, texts, true, false, null, lists and mappings"
        raise refusal(f"{requirement}: {error}") from error
    return value


def path_check(info: ValidationInfo) -> Callable[[str], str | None]:
    """Return the check of a field path: custom trainables may name their fields freely."""
    return path_problem if (info.context or {}).get(IS_CUSTOM_KEY) else built_in_problem


def _path(path: str, info: ValidationInfo) -> str:
    if problem := path_check(info)(path):
        raise refusal(problem)
    return path


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError
    return name


def _whole_or_part(gpus: float) -> float:
    if gpus > 1 and gpus != int(gpus):
        raise ValueError
    return gpus


_Item = TypeVar("_Item")
_UNIQUE: Final[dict[str, JsonValue]] = {"uniqueItems": True}

TupleOf = Annotated[tuple[_Item, ...], BeforeValidator(_to_tuple)]
NonEmpty = Annotated[tuple[_Item, ...], Field(min_length=1), BeforeValidator(_to_tuple)]
Distinct = Annotated[
    tuple[_Item, ...],
    Field(json_schema_extra=_UNIQUE),
    BeforeValidator(_to_tuple),
    AfterValidator(_require_distinct),
]
NonEmptyDistinct = Annotated[
    tuple[_Item, ...],
    Field(min_length=1, json_schema_extra=_UNIQUE),
    BeforeValidator(_to_tuple),
    AfterValidator(_require_distinct),
]

Text = Annotated[str, Field(min_length=1, pattern=r"\S"), described_as("a text that is not empty")]


def _require_inside(pattern: str) -> str:
    try:
        next(File("nowhere").glob(pattern), None)
        is_fit = ".." not in File(pattern).parts
    except (NotImplementedError, ValueError):  # an absolute path, or a pattern such as `a**b`
        is_fit = False
    if not is_fit:
        raise refusal(
            "must be a pattern relative to the working folder of a trial that does not leave it, such as "
            f"plots/*.png, got {format_value(pattern)}"
        )
    return pattern


Pattern = Annotated[Text, AfterValidator(_require_inside)]
Name = Annotated[
    str,
    Field(pattern=NAME_PATTERN),
    described_as("a name of at most 64 letters, digits, '-' and '_' that begins with a letter or digit"),
]


def _arm_name(name: Any) -> Any:
    if not isinstance(name, str) or not re.search(ARM_PATTERN, name) or not name.isprintable():
        raise refusal(
            "must be a name of at most 64 printable characters without brackets, commas and quotes, with no "
            f"'-' or space at its beginning and no space at its end, got {format_value(name)}"
        )
    return name


ArmName = Annotated[str, BeforeValidator(_arm_name), Field(json_schema_extra={"pattern": ARM_PATTERN})]
Trainable = Annotated[
    str,
    Field(pattern=TRAINABLE_PATTERN),
    described_as("package.module:name, a class or function that can be imported, or the path of a script"),
]
Path = Annotated[str, AfterValidator(_path), Field(json_schema_extra={"pattern": PATH_PATTERN})]
Json = Annotated[Any, AfterValidator(_json)]
Scalar = Annotated[bool | int | float | str | None, described_as("a number, a text, true, false or null")]
Count = Annotated[int, Field(ge=1, le=10**9), described_as("an integer >= 1")]
Natural = Annotated[int, Field(ge=0, le=10**9), described_as("an integer >= 0")]
Seed = Annotated[int, Field(ge=0, lt=2**31), described_as("an integer from 0 to 2147483647")]
MAX_SEEDS: Final = 10_000


def _expand_seeds(value: Any) -> Any:
    """Expand a number of seeds to a list; a smaller number always gives the beginning of the same list."""
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if not 1 <= value <= MAX_SEEDS:
        raise refusal(
            f"must be seeds, or how many of them, from 1 to {MAX_SEEDS:,}, got {format_value(value)}"
        )
    return [derive_seed("confirm", number) for number in range(value)]


Seeds = Annotated[
    tuple[Seed, ...],
    Field(
        json_schema_extra={
            "type": ["array", "integer"],
            "minItems": 1,
            "uniqueItems": True,
            "minimum": 1,
            "maximum": MAX_SEEDS,
        }
    ),
    AfterValidator(_require_distinct),
    Field(min_length=1),
    BeforeValidator(_to_tuple),
    BeforeValidator(_expand_seeds),
]
"""Seeds, written as a list or as a number of seeds."""
Number = Annotated[float, Field(allow_inf_nan=False), described_as("a number")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), described_as("a number > 0")]
Gpus = Annotated[
    float,
    Field(ge=0, le=1024, allow_inf_nan=False),
    AfterValidator(_whole_or_part),
    described_as("0, a part of one GPU like 0.25, or a whole number of GPUs"),
]
Metric = Annotated[
    str,
    Field(min_length=1, pattern=r"\S"),
    AfterValidator(_printable),
    described_as("the name of a metric as it is reported, printable and on one line"),
]
Scope = Annotated[
    str, Field(pattern=SCOPE_PATTERN), described_as("last, best or mean-of-last-N with N of 1 or more")
]
Level = Annotated[
    float, Field(gt=0, lt=0.5, allow_inf_nan=False), described_as("a number above 0 and below 0.5")
]
Split = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"), described_as("the name of a split, e.g. near-iid")
]


def _read_space(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, tuple) and all(isinstance(entry, Dimension) for entry in value):
        return value
    dimensions, problems = parse_space(value, path_check(info))
    if problems:
        faults = [(problem.path, problem.message) for problem in problems]
        raise PydanticCustomError(FAULTS, "{faults}", {"faults": faults})
    return dimensions


def range_schema() -> dict[str, Any]:
    """Return the JSON Schema of a range as written in a spec."""
    condition_schema = {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}}
    values: dict[str, Any] = {
        "float": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        "int": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
        "choice": {"type": "array", "minItems": 1, "uniqueItems": True},
        "fixed": {},
    }
    factor = {"type": "string", "pattern": FACTOR_PATTERN}
    step = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, factor]}
    properties: dict[str, Any] = {"log": {"type": "boolean"}, "step": step}
    forms = [
        {
            "type": "object",
            "required": [form],
            "properties": {form: values[form], "when": condition_schema}
            | {key: properties[key] for key in sorted(keys)},
            "additionalProperties": False,
        }
        for form, keys in FORMS.items()
    ]
    return {"oneOf": forms}


Dimensions = Annotated[
    tuple[Dimension, ...],
    BeforeValidator(_read_space),
    PlainSerializer(render_space),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": PATH_PATTERN},
            "additionalProperties": range_schema(),
        }
    ),
]
"""Dimensions, written as a mapping from field path to range."""


def _point(value: Any, info: ValidationInfo) -> Any:
    """Validate a point as written in a spec: values by field path, or the name of a sweep."""
    if not isinstance(value, Mapping):
        raise refusal(
            f"must be a mapping from field path to value, or {{from: SWEEP}}, got {format_value(value)}"
        )
    if FROM_KEY not in value:
        return _values_by_path(value, info)
    if unknown_keys := sorted(set(value) - {FROM_KEY, RESULT_KEY}):
        unknown = ", ".join(unknown_keys)
        raise refusal(f"must have no other key if it has the key {FROM_KEY!r}, got {unknown}")
    if not isinstance(value[FROM_KEY], str) or not value[FROM_KEY].strip():
        raise refusal(f"must have the name of a sweep as {FROM_KEY!r}, got {format_value(value[FROM_KEY])}")
    if RESULT_KEY not in value:
        return dict(value)
    found = value[RESULT_KEY]
    if not isinstance(found, Mapping) or not all(isinstance(item, Mapping) for item in found.values()):
        raise refusal(f"must have a mapping from arm to values as {RESULT_KEY!r}, got {format_value(found)}")
    return {**value, RESULT_KEY: {arm: _values_by_path(values, info) for arm, values in found.items()}}


def _values_by_path(values: Mapping[str, Any], info: ValidationInfo) -> dict[str, Any]:
    for path, value in values.items():
        _path(path, info)
        _json(value)
    return dict(values)


_FREE: Final = {"type": "object"}
Point = Annotated[Mapping[Path, Json], PlainValidator(_point), WithJsonSchema(_FREE)]
"""One point of a search: values by field path, or the name of another sweep under `from`.

After the look-up of the sweep, `found` contains its best values by arm.
"""


def _constraint(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, Rule):
        return value
    if not isinstance(value, str) or not value.strip():
        raise refusal(
            f"must be a condition like 'width % heads == 0', or module:function, got {format_value(value)}"
        )
    text = value.strip()
    if _TRAINABLE.fullmatch(text):
        return Predicate(text)
    try:
        formula = parse_formula(text)
    except BadFormula as error:
        raise refusal(str(error)) from error
    for path in formula.fields.values():
        _path(path, info)
    return _comparison(formula) or Formula(text)


def _comparison(formula: ParsedFormula) -> Constraint | None:
    """Return the formula as a comparison of a field with a field or a number; None for any other formula."""
    match formula.tree:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            left_side, right_side = _parse_side(left, formula), _parse_side(right, formula)
        case _:
            return None
    sign = _OPERATORS[type(op)]
    if isinstance(left_side, str) and right_side is not None:
        return Constraint(left_side, sign, right_side)
    if isinstance(right_side, str) and left_side is not None:
        return Constraint(right_side, sign.translate(_MIRRORED_OPERATORS), left_side)
    return None


def _parse_side(tree: ast.expr, formula: ParsedFormula) -> str | float | None:
    """Return one side of a comparison as a path or a number; None for anything else."""
    match tree:
        case ast.Name(id=name):
            return formula.fields[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _parse_side(operand, formula)
            if number is None or isinstance(number, str):
                return None
            return -number if isinstance(sign, ast.USub) else number
        case ast.Constant(value=int() | float() as number):
            return None if isinstance(number, bool) else number
        case _:
            return None


Condition = Annotated[
    Rule,
    PlainValidator(_constraint),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "minLength": 1}),
]
"""Condition on values that a search draws: a formula, or a function of the user."""


def _spread(value: Any) -> Any:
    """Validate a spread as written in a spec: a number, or the sweep from which it is estimated."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    if not isinstance(value, Mapping):
        raise refusal(f"must be a number > 0 or {{from: SWEEP}}, got {format_value(value)}")
    name, spread = value.get(FROM_KEY), value.get(RESULT_KEY, 1.0)
    if not isinstance(name, str) or not name.strip() or set(value) - {FROM_KEY, RESULT_KEY}:
        raise refusal(
            f"must have the name of a sweep as {FROM_KEY!r} and no other key, got {format_value(value)}"
        )
    if not isinstance(spread, int | float) or isinstance(spread, bool) or not 0 < spread < float("inf"):
        raise refusal(f"must have a number > 0 as {RESULT_KEY!r}, got {format_value(spread)}")
    return dict(value)


Spread = Annotated[
    float | Mapping[str, Any],
    PlainValidator(_spread),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {
                    "type": "object",
                    "required": [FROM_KEY],
                    "properties": {
                        FROM_KEY: {"type": "string"},
                        RESULT_KEY: {"type": "number", "exclusiveMinimum": 0},
                    },
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
"""Standard deviation over seeds, or under `from` the name of the sweep from which it is estimated.

After the look-up of the sweep, `found` contains the estimate.
"""


def _component(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _expand_name(component: Any) -> Any:
    if not isinstance(component, Mapping):
        raise refusal(f"must be a mapping with a name, got {format_value(component)}")
    if "name" in component and not isinstance(component["name"], str):
        raise refusal(f"must have a text as its name, got {format_value(component['name'])}")
    if not component.get("name"):
        raise refusal(f"must have a name, got {format_value(component)}")
    return dict(component)


NamedSettings = Annotated[
    Mapping[str, Json],
    BeforeValidator(_expand_name),
    Field(json_schema_extra={"required": ["name"]}),
]
"""Settings of a task or a model, with its `name`."""
Component = Annotated[
    Mapping[str, Json],
    BeforeValidator(_expand_name),
    BeforeValidator(_component),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {
                    "type": "object",
                    "properties": {"name": {"type": "string", "minLength": 1}},
                    "required": ["name"],
                },
            ]
        }
    ),
]
"""Sampler or early stopper: a name, or a mapping of `name` and keyword arguments.

`schema` adds the list of known names, because listing them loads Optuna.
"""

assert PATH_PATTERN.startswith(f"^({'|'.join(ROOTS)})"), "the pattern and the roots of a path must agree"
