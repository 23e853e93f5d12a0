"""Parse dimensions from a spec and render them back: `{float: [1.0e-4, 1.0e-2], log: true}`.

Each dimension is one mapping. Exactly one key defines the domain: `float: [low, high]`, `int: [low, high]`,
`choice: [a, b]` or `fixed: value`. Ranges accept `log: true` and a step, either additive (`step: 8`) or
multiplicative (`step: x2`). Every domain accepts `when: {path: [values]}`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from search_spaces.algebra import CyclicSpace, order_dimensions
from search_spaces.dimensions import Choice, Dimension, Domain, Fixed, Float, Int, Powers, Value, When
from search_spaces.paths import built_in_problem
from search_spaces.wording import format_value, hint

FORMS: Final = {
    "float": frozenset({"log", "step"}),
    "int": frozenset({"log", "step"}),
    "choice": frozenset[str](),
    "fixed": frozenset[str](),
}
"""Optional keys by domain."""
FACTOR_PATTERN: Final = r"^x([1-9][0-9]{0,8})$"
_FACTOR: Final = re.compile(FACTOR_PATTERN)


_Built = TypeVar("_Built")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a space in a spec."""

    path: tuple[str | int, ...]
    """Keys and positions relative to the parsed mapping, e.g. ("train.lr", "float", 0)."""
    message: str


PathProblem = Callable[[str], str | None]


def parse_space(
    value: Any, path_problem: PathProblem = built_in_problem
) -> tuple[tuple[Dimension, ...], tuple[Problem, ...]]:
    """Return the valid dimensions of a mapping, and the problems of its invalid dimensions.

    Args:
        value: Mapping from field path to range, as in a spec.
        path_problem: Returns the problem of a field path, or None if the path is valid.
    """
    if not isinstance(value, Mapping):
        return (), (Problem((), f"must be a mapping from field path to range, got {format_value(value)}"),)
    problems: list[Problem] = []
    dimensions: list[Dimension] = []
    for path, form in value.items():
        if problem := path_problem(path):
            problems.append(Problem((path,), problem))
        dimension = _Reader(path, problems, path_problem).dimension(form)
        if dimension is not None:
            dimensions.append(dimension)
    try:
        return order_dimensions(dimensions), tuple(problems)
    except CyclicSpace as error:
        return tuple(dimensions), (*problems, Problem((), str(error)))


def render_space(dimensions: Sequence[Dimension]) -> dict[str, Any]:
    """Return the mapping that `parse_space` reads back as `dimensions`.

    Sources are left out, since a spec cannot contain them.
    """
    return {dimension.path: _render(dimension) for dimension in dimensions}


def _render(dimension: Dimension) -> dict[str, Any]:
    match dimension.domain:
        case Float(low, high, log, step):
            rendered: dict[str, Any] = {"float": [low, high]}
            rendered |= {"log": True} if log else {}
            rendered |= {"step": step} if step is not None else {}
        case Int(low, high, log, count):
            rendered = {"int": [low, high]}
            rendered |= {"log": True} if log else {}
            rendered |= {"step": count} if count != 1 else {}
        case Powers(low, high, factor):
            form = "int" if isinstance(low, int) else "float"
            rendered = {form: [low, high], "step": f"x{factor}"}
        case Choice(values):
            rendered = {"choice": list(values)}
        case Fixed(value):
            rendered = {"fixed": value}
    if dimension.when:
        rendered["when"] = {condition.path: list(condition.values) for condition in dimension.when}
    return rendered


class _Reader:
    """Parser of one dimension that collects its problems."""

    def __init__(self, path: str, problems: list[Problem], path_problem: PathProblem) -> None:
        self.path = path
        self.problems = problems
        self.path_problem = path_problem

    def dimension(self, form: Any) -> Dimension | None:
        num_problems_before = len(self.problems)
        if not isinstance(form, Mapping):
            self._add_problem(
                f"must be a range like {{float: [1.0e-4, 1.0e-2], log: true}}, got {format_value(form)}"
            )
            return None
        domain = self._domain(form)
        when = self._when(form.get("when", {}))
        if domain is None or self.path_problem(self.path) or len(self.problems) > num_problems_before:
            return None
        return self._construct(partial(Dimension, self.path, domain, when))

    def _domain(self, form: Mapping[str, Any]) -> Domain | None:
        given_forms = [kind for kind in FORMS if kind in form]
        if len(given_forms) != 1:
            shown_forms = " and ".join(given_forms) if given_forms else format_value(form)
            unknown = (
                next((key for key in form if key not in {"log", "step", "when"}), "")
                if not given_forms
                else ""
            )
            suggestion = f". {hint(unknown, FORMS)}" if unknown else ""
            self._add_problem(
                f"must have exactly one of float, int, choice and fixed, got {shown_forms}{suggestion}"
            )
            return None
        (kind,) = given_forms
        allowed = {kind, "when", *FORMS[kind]}
        for key in form:
            if key not in allowed:
                self._add_problem(f"{key!r} does not go with {kind}. {hint(key, sorted(allowed))}", key)
        match kind:
            case "float":
                return self._float(form)
            case "int":
                return self._int(form)
            case "choice":
                return self._choice(form["choice"])
            case _:
                return self._fixed(form["fixed"])

    def _float(self, form: Mapping[str, Any]) -> Float | Powers | None:
        bounds = self._bounds(form["float"], "float", _is_number, "two numbers [low, high]")
        log = self._log(form)
        step = form.get("step")
        if isinstance(step, str):
            return self._powers(
                step, "float", None if bounds is None else (float(bounds[0]), float(bounds[1])), log
            )
        if step is not None and not _is_number(step):
            self._add_problem(f"must be a number > 0, or a factor like x10, got {format_value(step)}", "step")
            return None
        if bounds is None or log is None:
            return None
        low, high = map(float, bounds)
        return self._construct(partial(Float, low, high, log, None if step is None else float(step)), "float")

    def _int(self, form: Mapping[str, Any]) -> Int | Powers | None:
        bounds = self._bounds(form["int"], "int", _is_int, "two integers [low, high]")
        log = self._log(form)
        step = form.get("step", 1)
        if isinstance(step, str):
            return self._powers(step, "int", bounds, log)
        if not _is_int(step):
            self._add_problem(
                f"must be an integer >= 1, or a factor like x2, got {format_value(step)}", "step"
            )
            return None
        if bounds is None or log is None:
            return None
        low, high = bounds
        return self._construct(partial(Int, low, high, log, step), "int")

    def _powers(
        self, step: str, form: str, bounds: tuple[Any, Any] | None, log: bool | None
    ) -> Powers | None:
        factor = _FACTOR.fullmatch(step)
        if factor is None:
            self._add_problem(
                f"must be a number, or a whole factor like x2 or x10, got {format_value(step)}", "step"
            )
            return None
        if log:
            self._add_problem(
                "log and step exclude each other: a factor already gives logarithmic steps", "log"
            )
            return None
        if bounds is None or log is None:
            return None
        low, high = bounds
        return self._construct(partial(Powers, low, high, int(factor[1])), form)

    def _choice(self, values: Any) -> Choice | None:
        listed = self._value_list(values, "choice")
        return None if listed is None else self._construct(partial(Choice, listed), "choice")

    def _fixed(self, value: Any) -> Fixed | None:
        return self._construct(partial(Fixed, value), "fixed")

    def _bounds(
        self, value: Any, key: str, allowed: Callable[[Any], bool], expected: str
    ) -> tuple[Any, Any] | None:
        if not isinstance(value, list | tuple) or len(value) != 2:
            self._add_problem(f"must be {expected}, got {format_value(value)}", key)
            return None
        invalid_bounds = [(position, bound) for position, bound in enumerate(value) if not allowed(bound)]
        for position, bound in invalid_bounds:
            self._add_problem(f"must be one of {expected}, got {format_value(bound)}", key, position)
        return None if invalid_bounds else (value[0], value[1])

    def _log(self, form: Mapping[str, Any]) -> bool | None:
        log = form.get("log", False)
        if isinstance(log, bool):
            return log
        self._add_problem(f"must be true or false, got {format_value(log)}", "log")
        return None

    def _when(self, value: Any) -> tuple[When, ...]:
        if not isinstance(value, Mapping):
            self._add_problem(
                f"must be a mapping from field path to a list of values, got {format_value(value)}", "when"
            )
            return ()
        conditions: list[When] = []
        for path, values in value.items():
            when_values = self._value_list(values, "when", path)
            if problem := self.path_problem(str(path)):
                self._add_problem(problem, "when", path)
            elif when_values is not None:
                condition = self._construct(partial(When, path, when_values), "when", path)
                conditions.extend([condition] if condition is not None else [])
        return tuple(conditions)

    def _value_list(self, values: Any, *keys: str | int) -> tuple[Value, ...] | None:
        if isinstance(values, list | tuple):
            return tuple(values)
        self._add_problem(f"must be a list of values, got {format_value(values)}", *keys)
        return None

    def _construct(self, make: Callable[[], _Built], *keys: str | int) -> _Built | None:
        try:
            return make()
        except ValueError as error:
            self._add_problem(str(error), *keys)
            return None

    def _add_problem(self, message: str, *keys: str | int) -> None:
        self.problems.append(Problem((self.path, *keys), message))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
