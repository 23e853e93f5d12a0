"""Dimensions of a search space: field path, domain of values, and conditions of existence.

The module does not import torch, Optuna or Ray. Every constructor raises a ValueError that lists all problems
of its arguments.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from search_spaces.formulas import parse_formula, path_needs_quotes
from search_spaces.paths import path_problem
from search_spaces.wording import format_value

Value = bool | int | float | str | list[Any] | dict[str, Any] | None
"""A value of a dimension; a JSON value, so that every store can represent it."""

STEPS_MAX: Final = 2**53
"""Largest number of lattice steps: floats represent every integer up to 2^53."""
OPERATORS: Final = ("<", "<=", "==", "!=", ">=", ">")


@dataclass(frozen=True, slots=True)
class Float:
    """Real numbers in [low, high].

    `log` samples the logarithm uniformly. `step` restricts the values to `low`, `low + step`, ...
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None
    kind: Literal["float"] = field(default="float", repr=False, kw_only=True)

    def __post_init__(self) -> None:
        finite = math.isfinite(self.low) and math.isfinite(self.high)
        _raise_problems(
            "" if finite else f"bounds must be finite, got low={self.low}, high={self.high}",
            _range_problem(self.low, self.high),
            _width_problem(self.low, self.high, self.step) if finite else "",
            f"log needs low > 0, got low={self.low}" if self.log and self.low <= 0 else "",
            f"step must be > 0 and finite, got step={self.step}" if not _is_step(self.step) else "",
            _stride_problem(self.low, self.high, self.step),
            f"log and step exclude each other, got step={self.step}" if self.log and self.step else "",
        )


@dataclass(frozen=True, slots=True)
class Int:
    """Integers in [low, high], both ends included; `step` counts from `low`."""

    low: int
    high: int
    log: bool = False
    step: int = 1
    kind: Literal["int"] = field(default="int", repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _raise_problems(
            _range_problem(self.low, self.high),
            f"log needs low >= 1, got low={self.low}" if self.log and self.low < 1 else "",
            f"step must be >= 1, got step={self.step}" if self.step < 1 else "",
            _stride_problem(self.low, self.high, self.step if self.step > 1 else None),
            f"log and step exclude each other, got step={self.step}" if self.log and self.step > 1 else "",
        )


@dataclass(frozen=True, slots=True)
class Powers:
    """Numbers that grow by a factor: `low`, `low * factor`, ..., `high`. The factor must lead to `high`."""

    low: float | int
    high: float | int
    factor: int
    kind: Literal["powers"] = field(default="powers", repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _raise_problems(
            _range_problem(self.low, self.high),
            f"step: x{self.factor} needs low > 0, got low={self.low}" if self.low <= 0 else "",
            f"step must be x2, x3, ... with a whole number, got x{self.factor}" if self.factor < 2 else "",
        )
        if not math.isclose(self.values[-1], self.high, rel_tol=1e-9):
            last, next_power = self.values[-1], self.values[-1] * self.factor
            raise ValueError(
                f"step: x{self.factor} from {self.low} must lead to the high end, got {self.high}: end at "
                f"{last:g} or {next_power:g}"
            )

    @property
    def values(self) -> tuple[float | int, ...]:
        """Return all values in ascending order."""
        powers = [self.low]
        while (next_value := _times(powers[-1], self.factor)) <= self.high * (1 + 1e-9):
            powers.append(next_value)
        return tuple(powers)

    @property
    def log(self) -> bool:
        """Return True, since powers are evenly spaced on a logarithmic scale."""
        return True


def _times(value: float | int, factor: int) -> float | int:
    """Return `value * factor` without rounding errors: 0.001 after 0.0001, not 0.0009999999999999998."""
    return value * factor if isinstance(value, int) else float(f"{value * factor:.15g}")


@dataclass(frozen=True, slots=True)
class Choice:
    """A domain of listed values."""

    values: tuple[Value, ...]
    kind: Literal["choice"] = field(default="choice", repr=False, kw_only=True)

    def __post_init__(self) -> None:
        repeated_values = sorted(map(format_value, _repeated_values(self.values)))
        _raise_problems(
            "" if self.values else "a choice must have at least one value, got none",
            f"values of a choice must differ, got {', '.join(repeated_values)} more than once"
            if repeated_values
            else "",
            *(
                f"values must be finite, got {format_value(value)}"
                for value in self.values
                if not _is_finite(value)
            ),
        )


@dataclass(frozen=True, slots=True)
class Fixed:
    """A domain with one value; it removes a dimension from a built-in space without editing the space."""

    value: Value
    kind: Literal["fixed"] = field(default="fixed", repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _raise_problems("" if _is_finite(self.value) else f"a fixed value must be finite, got {self.value}")


Domain = Float | Int | Powers | Choice | Fixed
"""Domain of a dimension; `kind` identifies the class in stored JSON."""


@dataclass(frozen=True, slots=True)
class When:
    """A condition: a dimension exists only if the dimension or field `path` has one of `values`."""

    path: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        _raise_problems(
            path_problem(self.path) or "",
            "" if self.values else f"a condition must list at least one value of {self.path}, got none",
        )


@dataclass(frozen=True, slots=True)
class Dimension:
    """A searched field: `path` in the settings, e.g. `model.halt.threshold`, and its domain."""

    path: str
    domain: Domain
    when: tuple[When, ...] = ()
    source: str = ""
    """Origin of the range, e.g. a section of a paper."""

    def __post_init__(self) -> None:
        depends_on_itself = any(condition.path == self.path for condition in self.when)
        _raise_problems(
            path_problem(self.path) or "",
            f"a dimension must not depend on itself, got {self.path}" if depends_on_itself else "",
        )


@dataclass(frozen=True, slots=True)
class Constraint:
    """A rule that admits params only if `left <op> right`.

    For example `model.memory.slots <= model.width`.
    """

    left: str
    op: str
    """`<`, `<=`, `==`, `!=`, `>=` or `>`."""
    right: str | float | int
    """A path or a number."""

    def __post_init__(self) -> None:
        _raise_problems(
            path_problem(self.left) or "",
            ""
            if self.op in OPERATORS
            else f"an operator must be one of {', '.join(OPERATORS)}, got {self.op!r}",
            (path_problem(self.right) or "") if isinstance(self.right, str) else "",
        )

    def __str__(self) -> str:
        left, right = (
            f"`{operand}`" if isinstance(operand, str) and path_needs_quotes(operand) else operand
            for operand in (self.left, self.right)
        )
        return f"{left} {self.op} {right}"

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the compared fields."""
        return tuple(operand for operand in (self.left, self.right) if isinstance(operand, str))


@dataclass(frozen=True, slots=True)
class Formula:
    """A rule that admits an assignment if a formula holds, e.g. `width % heads == 0`."""

    formula: str

    def __post_init__(self) -> None:
        parse_formula(self.formula)

    def __str__(self) -> str:
        return self.formula

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the fields of the formula."""
        return tuple(parse_formula(self.formula).fields.values())


@dataclass(frozen=True, slots=True)
class Predicate:
    """A rule that admits an assignment if the user's function or pydantic model accepts the settings."""

    predicate: str
    """`module:name`."""
    trainable: str = ""
    """Trainable whose Config is the predicate, passed as the second argument; empty for other predicates."""
    refused: int = 0
    tried: int = 0
    """For a Config, the number of combinations that the planner tried; `refused` counts those refused."""

    def __str__(self) -> str:
        return f"Config beside {self.trainable}" if self.trainable else self.predicate

    @property
    def paths(self) -> tuple[str, ...]:
        """Return no fields, since the fields that a function reads are unknown."""
        return ()


Rule = Constraint | Formula | Predicate
"""A condition that all drawn values must satisfy."""


@dataclass(frozen=True, slots=True)
class Space:
    """Dimensions and constraints between them; each dimension follows those that it depends on."""

    dimensions: tuple[Dimension, ...] = ()
    constraints: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        repeated_paths = [path for path, count in Counter(self.paths).items() if count > 1]
        _raise_problems(
            f"a space must have each path once, got {', '.join(repeated_paths)} twice"
            if repeated_paths
            else ""
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of all dimensions, in order."""
        return tuple(dimension.path for dimension in self.dimensions)

    def __getitem__(self, path: str) -> Dimension:
        """Return the dimension at `path`; raise KeyError if there is none."""
        for dimension in self.dimensions:
            if dimension.path == path:
                return dimension
        raise KeyError(path)


Assignment = Mapping[str, Value]
"""Values by field path, for the dimensions that exist given these values."""


def are_equal(first: Value, second: Value) -> bool:
    """Return whether two values count as equal: 1 equals 1.0, but True does not equal 1."""
    return equality_key(first) == equality_key(second)


def equality_key(value: Any) -> Hashable:
    """Return a hashable key that is equal for equal values, including lists and mappings.

    1 and 1.0 have the same key; True and 1 do not.
    """
    match value:
        case Mapping():
            return "mapping", frozenset((key, equality_key(item)) for key, item in value.items())
        case list() | tuple():
            return "list", tuple(map(equality_key, value))
        case _:
            return isinstance(value, bool), value


def is_continuous(domain: "Domain") -> bool:
    """Return whether `domain` is a continuous range, in which no value is drawn twice."""
    return isinstance(domain, Float) and domain.step is None


def _repeated_values(values: Iterable[Value]) -> Iterator[Value]:
    """Yield every value that equals an earlier one."""
    seen: set[Hashable] = set()
    for value in values:
        key = equality_key(value)
        if key in seen:
            yield value
        seen.add(key)


def is_among(value: Value, values: Iterable[Value]) -> bool:
    """Return whether `value` equals one of `values`, as defined by `are_equal`."""
    return any(are_equal(value, item) for item in values)


def contains(domain: Domain, value: Value) -> bool:  # noqa: PLR0911 - one for each kind
    """Return whether `value` has the domain's type and is in the domain.

    Steps are compared up to rounding.
    """
    match domain:
        case Choice(values):
            return is_among(value, values)
        case Fixed(fixed):
            return are_equal(value, fixed)
        case Powers():
            is_integer = isinstance(domain.low, int)
            if isinstance(value, bool) or not isinstance(value, int if is_integer else int | float):
                return False
            return any(math.isclose(value, power, rel_tol=1e-9) for power in domain.values)
        case Int(low, high, _, step):
            if isinstance(value, bool) or not isinstance(value, int):
                return False
            return low <= value <= high and (value - low) % step == 0
        case Float(low, high, _, lattice):
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                return False
            return lattice is None or math.isclose(
                low + round((value - low) / lattice) * lattice, value, rel_tol=1e-9, abs_tol=1e-12
            )


def max_value(domain: Int | Float | Powers) -> int | float:
    """Return the greatest value that can be drawn: the high end, or the last step below it."""
    if isinstance(domain, Powers):
        return domain.values[-1]
    if isinstance(domain, Int):
        return domain.low + (domain.high - domain.low) // domain.step * domain.step
    if domain.step is None:
        return domain.high
    steps = (domain.high - domain.low) / domain.step
    whole_steps = round(steps) if math.isclose(steps, round(steps), rel_tol=1e-9) else math.floor(steps)
    return min(domain.high, domain.low + whole_steps * domain.step)


def _range_problem(low: float, high: float) -> str:
    return "" if low < high else f"low must be < high, got low={low}, high={high}"


def _stride_problem(low: float, high: float, step: float | None) -> str:
    if step is None or not low < high or low + step <= high or math.isclose(low + step, high):
        return ""
    return f"step must be <= high - low, got low={low}, high={high}, step={step}: only low could be drawn"


def _width_problem(low: float, high: float, step: float | None) -> str:
    if math.isinf(high - low):
        return f"high - low must be finite, got low={low}, high={high}"
    if not step or not 0 < step < (high - low) / STEPS_MAX:
        return ""
    return f"step must be at least (high - low) / 2**53, got step={step}: float64 cannot represent the steps"


def _is_step(step: float | None) -> bool:
    return step is None or (step > 0 and math.isfinite(step))


def _is_finite(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _raise_problems(*problems: str) -> None:
    """Raise a ValueError that lists all non-empty `problems`."""
    faults = [problem for problem in problems if problem]
    if faults:
        raise ValueError("; ".join(faults))
