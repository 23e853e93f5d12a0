"""Check with sample draws that the trainable accepts every draw of an arm's search.

For a choice or a short range every value is tried; for a long range the ends and some values in between.
Values are tried alone, then in combinations as in a trial. Each failure is traced to the dimensions that
cause it.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from orchestrator.errors import FaultCode
from orchestrator.plan.arms import Checked, CheckedArm
from orchestrator.plan.display.format import quote_values
from orchestrator.plan.faults import Faults
from orchestrator.plan.space_check.spaces import assign_params, dimension_keys, enabling_params, range_ends
from orchestrator.plan.training_code.settings import SettingFault
from orchestrator.spec.types import Search, Spec
from search_spaces.algebra import admits, exists
from search_spaces.dimensions import (
    Assignment,
    Choice,
    Dimension,
    Domain,
    Float,
    Int,
    Predicate,
    Space,
    Value,
    max_value,
)
from search_spaces.grid import combinations, count_values, finite_values, is_finite
from search_spaces.wording import format_value

MAX_VALUES_ALONE = 1024
"""Maximum size of a range of which every value is tried alone."""
MAX_VALUES_COMBINED = 64
"""Maximum size of a range of which every value is tried in combinations."""
SAMPLE_POSITIONS = tuple((place + (5**0.5 - 1) / 2) / 8 for place in range(8))
"""Positions of the values tried within a longer range; uneven, as an integer field accepts round numbers."""
MAX_DRAWS = 2000
"""Maximum number of draws tried per arm. If there are more possible draws, random ones are tried."""
NUM_CONSTRAINT_DRAWS = 10_000
"""A search is refused if none of this many random draws satisfies its constraints."""
NUM_FAILING_DRAWS = 16
"""Number of draws in which a value must fail to be reported as impossible."""
END_MARGIN = 0.1
"""Share of a range beyond each end. Random values there are moved to the end, so that ends are frequent."""


@dataclass(frozen=True, slots=True)
class SettingsCheck:
    """Functions of a trainable that check whether settings can be trained."""

    parse: Checked[Any]
    size_problem: Callable[[Any], str | None]
    """Returns why no machine could train the checked settings, or None. Raises ValueError if they cannot be
    built."""
    parse_draw: Callable[[Mapping[str, Any], Assignment], Any | list[SettingFault] | None]
    """Returns the result of `parse` for settings with a draw; None if a path does not exist."""
    config_rule: Predicate | None = None
    """Rule for a search in which the trainable's Config refuses combinations; None if the trainable has no
    Config."""


def check_draws(
    arm: CheckedArm[Any], space: Space, settings_check: SettingsCheck, spec: Spec, faults: Faults
) -> Space:
    """Add faults for values, and for combinations of values, that can be drawn but not trained.

    Returns:
        `space`, with an added rule if the trainable's Config refuses combinations.
    """
    assert spec.search is not None, "there must be a search to draw for"
    drawing = _Drawing(arm.system.settings, space, settings_check)
    are_sound = [_check_alone(arm, entry, drawing, spec.search, faults) for entry in space.dimensions]
    if not all(are_sound):
        return space
    draws = drawing.draws()
    admitted = [draw for draw in draws if drawing.admits(draw)]
    refused = set[int]()
    for place, draw in enumerate(admitted):
        if problem := drawing.problem(draw):
            if drawing.is_refused_by_config(draw):
                refused.add(place)
            else:
                _add_combination(arm, draw, problem, drawing, faults)
    if refused and settings_check.config_rule is not None:
        rule = replace(settings_check.config_rule, refused=len(refused), tried=len(admitted))
        space = Space(space.dimensions, (*space.constraints, rule))
        drawing = replace(drawing, space=space)
    num_params, best = len(admitted) - len(refused), 1 if spec.confirm is None else spec.confirm.best
    if (
        draws
        and not num_params
        and not any(drawing.admits(drawing.draw({})) for _ in range(NUM_CONSTRAINT_DRAWS))
    ):
        constraints_text = ", ".join(map(str, space.constraints))
        message = f"no params drawn for {arm.name} satisfy {constraints_text}: change the ranges"
        about = ("nothing satisfies", constraints_text)
        faults.add(message, "search", about=about, code=FaultCode.NOTHING_TO_DRAW)
    elif num_params < best and len(draws) < MAX_DRAWS and all(map(_is_enumerated, space.dimensions)):
        message = (
            f"must be at most {num_params}, got {best}: the search space of {arm.name} has only {num_params} "
            "different params"
        )
        faults.add(message, "confirm", "best", about=("best", num_params), code=FaultCode.NOTHING_TO_DRAW)
    return space


def candidates(domain: Domain, max_count: int = MAX_VALUES_COMBINED) -> tuple[Value, ...]:
    """Return all values of a choice or a short range; for a longer range the ends and some in between."""
    if not isinstance(domain, Int | Float) or (is_finite(domain) and count_values(domain) <= max_count):
        return tuple(finite_values(domain))
    inner = (_value_at(domain, share) for share in SAMPLE_POSITIONS)
    return tuple(dict.fromkeys((domain.low, *inner, max_value(domain))))


def _value_at(domain: Domain, share: float) -> Value:
    """Return the value at a share of the way through `domain`, from 0, the first value, to 1, the last."""
    match domain:
        case Float(low, high, log, None):
            return min(low * (high / low) ** share if log else low + share * (high - low), high)
        case Int() | Float():
            value = domain.low + (domain.step or 0) * round(share * (count_values(domain) - 1))
            return min(value, max_value(domain))
        case _:
            values = finite_values(domain)
            return values[round(share * (len(values) - 1))]


def _is_enumerated(dimension: Dimension) -> bool:
    """Return whether `candidates` returns all values of `dimension`."""
    domain = dimension.domain
    return is_finite(domain) and count_values(domain) == len(candidates(domain))


@dataclass(frozen=True)
class _Drawing:
    """Draws of an arm's search and checks of the resulting settings."""

    settings: Mapping[str, Any]
    space: Space
    check: SettingsCheck
    _chance: random.Random = field(default_factory=lambda: random.Random(0))

    def admits(self, draw: Assignment) -> bool:
        """Return whether `draw` satisfies the constraints."""
        try:
            return all(admits(rule, draw, self.settings) for rule in self.space.constraints)
        except TypeError:
            return True  # the check of constraints reports values that cannot be compared

    def problem(self, draw: Assignment, *, whole: bool = False) -> str | None:
        """Return why `draw` cannot be trained; None if it can, or if constraints exclude it.

        Args:
            draw: Values by path.
            whole: Whether to also check that some machine could train it.
        """
        if not self.admits(draw) or (variant := self.check.parse_draw(self.settings, draw)) is None:
            return None
        if isinstance(variant, list):
            remainder = f" (and {len(variant) - 1} more)" if len(variant) > 1 else ""
            return variant[0].message + remainder
        try:
            return self.check.size_problem(variant) if whole else None
        except ValueError as error:
            return str(error)

    def fits(self, draw: Assignment, *, whole: bool = False) -> bool:
        """Return whether the search may draw `draw` and the trainable can train it."""
        return self.admits(draw) and self.problem(draw, whole=whole) is None

    def is_refused_by_config(self, draw: Assignment) -> bool:
        """Return whether the trainable has a Config that refuses the settings with `draw`."""
        settings = assign_params(self.settings, draw)
        is_refused = settings is not None and isinstance(self.check.parse(settings), list)
        return self.check.config_rule is not None and is_refused

    def draw(self, assignment: Assignment) -> dict[str, Value]:
        """Return a random draw, with the values of `assignment` for those dimensions that exist in it."""
        params: dict[str, Value] = {}
        for dimension in self.space.dimensions:
            if exists(dimension, params, self.settings):
                share = self._chance.uniform(-END_MARGIN, 1 + END_MARGIN)
                drawn = _value_at(dimension.domain, min(1.0, max(0.0, share)))
                params[dimension.path] = assignment.get(dimension.path, drawn)
        return params

    def draws(self) -> list[Assignment]:
        """Return all combinations of candidates if there are at most `MAX_DRAWS`, else random draws."""
        choices = (replace(entry, domain=Choice(candidates(entry.domain))) for entry in self.space.dimensions)
        every = list(islice(combinations(Space(tuple(choices)), self.settings), MAX_DRAWS))
        return every if len(every) < MAX_DRAWS else [self.draw({}) for _ in range(MAX_DRAWS)]

    def impossible(self, dimension: Dimension, value: Value) -> str | None:
        """Return why no draw with `value` can be trained; None if one can, or if none is ever drawn."""
        enabling = enabling_params(dimension, self.space, self.settings) or {}
        needed, whole = {**enabling, dimension.path: value}, value in range_ends(dimension.domain)
        if (problem := self.problem(needed, whole=whole)) is None:
            return None
        draws = (self.draw(needed) for _ in range(NUM_FAILING_DRAWS))
        can_fit = any(dimension.path in draw and self.fits(draw, whole=whole) for draw in draws)
        return None if can_fit else problem

    def fitting_values(self, draw: Assignment, path: str) -> list[Value]:
        """Return the values of the dimension at `path` with which `draw` can be trained."""
        values = candidates(self.space[path].domain)
        return [value for value in values if self.fits(self.draw({**draw, path: value}))]


def _check_alone(
    arm: CheckedArm[Any], dimension: Dimension, drawing: _Drawing, search: Search, faults: Faults
) -> bool:
    """Return whether every value of `dimension` can be trained in some draw; add faults for other values."""
    domain = dimension.domain
    values = candidates(domain, MAX_VALUES_ALONE)
    problems = [(value, problem) for value in values if (problem := drawing.impossible(dimension, value))]
    possible = [value for value in values if value not in [wrong for wrong, _ in problems]]
    has_remedy = possible and not isinstance(domain, Float)
    remedy = f". Possible are {quote_values(possible, 'and')}" if has_remedy else ""
    # Messages that differ only in the value after "got" are one fault.
    for kind in dict.fromkeys(problem.partition(", got")[0] for _, problem in problems):
        alike = [each for each in problems if each[1].partition(", got")[0] == kind]
        if isinstance(domain, Float):  # report an end or one value: only a sample was tried
            alike = [each for each in alike if each[0] in range_ends(domain)] or alike[:1]
        values_text = quote_values([value for value, _ in alike])
        faults.add(
            f"{arm.name} cannot be trained with {dimension.path} = {values_text}: {alike[0][1]}{remedy}",
            *dimension_keys(dimension.path, search),
            about=("bounds", dimension.path, kind, values_text),
            code=FaultCode.NOTHING_TO_DRAW,
        )
    return not problems


def _add_combination(
    arm: CheckedArm[Any], draw: Assignment, problem: str, drawing: _Drawing, faults: Faults
) -> None:
    """Add a fault for values of `draw` that cannot be combined, once for all draws with the same problem."""
    about = ("together", problem.partition(", got")[0])
    if faults.has(*about):
        return
    words = problem.replace("=", " ").split()
    fitting = {path: drawing.fitting_values(draw, path) for path in draw}
    paths = [path for path in draw if fitting[path] or path.rpartition(".")[2] in words] or list(draw)
    *others, last = (f"{path} = {format_value(draw[path])}" for path in paths)
    has_remedy = others and fitting[paths[-1]]
    remedy = (
        f". With {', '.join(others)}, {paths[-1]} may be {quote_values(fitting[paths[-1]])}"
        if has_remedy
        else ""
    )
    message = f"{arm.name} cannot be trained with {', '.join([*others, last])}: {problem}{remedy}"
    faults.add(message, "search", about=about, code=FaultCode.NOTHING_TO_DRAW)
