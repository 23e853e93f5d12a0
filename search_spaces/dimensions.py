"""What one dimension of a search is: where it points, what it may be, and when it exists. Knows no torch, Optuna or Ray."""

from collections.abc import Mapping
from dataclasses import dataclass

Value = bool | int | float | str | None
"""What a dimension can be set to; JSON scalars, so that a choice survives every store."""


@dataclass(frozen=True, slots=True)
class Float:
    """Real numbers in [low, high]; `log` samples the logarithm evenly, `step` makes a lattice."""

    low: float
    high: float
    log: bool = False
    step: float | None = None


@dataclass(frozen=True, slots=True)
class Int:
    """Integers in [low, high], both ends included."""

    low: int
    high: int
    log: bool = False
    step: int = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a fixed list."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always `value`: takes a dimension out of a ready-made space without editing the space."""

    value: Value


Domain = Float | Int | Choice | Fixed


@dataclass(frozen=True, slots=True)
class When:
    """A dimension exists only while the dimension or field `path` has one of `values`."""

    path: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Dimension:
    """One thing that may vary: the field `path` of the settings, e.g. `model.halt.threshold`."""

    path: str
    domain: Domain
    when: tuple[When, ...] = ()
    source: str = ""
    """Where the range comes from, e.g. a paper's section."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """An assignment is admitted only if `left <op> right`, e.g. `model.chunk <= task.length_max`."""

    left: str
    op: str
    """`<`, `<=`, `==`, `!=`, `>=` or `>`."""
    right: str | float | int
    """A path, or a number."""


@dataclass(frozen=True, slots=True)
class Space:
    """Dimensions by path, in the order of their dependence, and the constraints between them."""

    dimensions: tuple[Dimension, ...] = ()
    constraints: tuple[Constraint, ...] = ()


Assignment = Mapping[str, Value]
"""Field path to value, for the dimensions that exist under it."""
