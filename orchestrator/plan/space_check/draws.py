"""Check with sample draws that the trainable accepts every draw of an arm's search.

For a choice or a short range every value is tried; for a long range the ends and some values in between.
Values are tried alone, then in combinations as in a trial. Each failure is traced to the dimensions that
cause it.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations, islice, product
from math import prod
from typing import Any

from orchestrator.errors import FaultCode
from orchestrator.plan.arms import Checked, CheckedArm
from orchestrator.plan.display.format import quote_values
from orchestrator.plan.faults import Faults
from orchestrator.plan.space_check.spaces import assign_params, condition_values, dimension_keys, ends
from orchestrator.plan.training_code.settings import SettingFault
from orchestrator.spec.types import Search, Spec
from search_spaces.algebra import admits, exists
from search_spaces.dimensions import (
    Assignment,
    Choice,
    Dimension,
    Domain,
    Fixed,
    Float,
    Int,
    Powers,
    Predicate,
    Rule,
    Space,
    Value,
    greatest,
)
from search_spaces.grid import count_values, finite_values
from search_spaces.wording import shown

ALONE_MAX = 1024
"""Maximum size of a range of which every value is tried alone."""
VALUES_MAX = 64
"""Maximum size of a range of which every value is tried in combinations."""
BETWEEN = 9
"""Number of values tried from a longer range, including its ends."""
UNEVEN = (5**0.5 - 1) / 2
"""Position of a tried real number between two evenly spaced ones, as a share of the distance."""
DRAWS_MAX = 2000
"""Maximum number of draws tried per arm.

If there are more possible draws, those of every pair of dimensions and some random ones are tried.
"""
CHANCES = 10_000
"""A search is refused if none of this many random draws satisfies its constraints."""
COMPLETIONS = 16
"""Number of draws in which a value must fail to be reported as impossible."""


@dataclass(frozen=True, slots=True)
class SettingsCheck:
    """Functions of a trainable that check whether settings can be trained."""

    checked: Checked[Any]
    too_large: Callable[[Any], str | None]
    """Returns why no machine could train the checked settings, or None. Raises ValueError if they cannot be
    built."""
    drawn: Callable[[Mapping[str, Any], Assignment], Any | list[SettingFault] | None]
    """Returns the result of `checked` for settings with a draw; None if a path does not exist."""
    refusing: Predicate | None = None
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
    settings, search = arm.system.settings, spec.search
    try:
        settings_check.too_large(arm.system)
    except ValueError:
        return space  # the ablation check refuses arms that cannot be built
    drawing = _Drawing(settings, space, partial(settings_check.drawn, settings), settings_check.too_large)
    are_sound = [_check_alone(arm, dimension, drawing, search, faults) for dimension in space.dimensions]
    if not all(are_sound):
        return space
    draws = list(islice(drawing.draws(DRAWS_MAX), DRAWS_MAX))
    rule = settings_check.refusing
    num_refused = _check_combinations(arm, draws, drawing, settings_check, faults)
    if num_refused and rule is not None:
        rule = replace(rule, refused=num_refused, tried=sum(map(drawing.admits, draws)))
        space = Space(space.dimensions, (*space.constraints, rule))
        drawing = _Drawing(settings, space, drawing.variant, settings_check.too_large)
    if draws and not any(map(drawing.admits, chain(draws, drawing.by_chance(CHANCES)))):
        constraints_text = ", ".join(map(str, space.constraints))
        message = f"{arm.name} can draw nothing that satisfies {constraints_text}: change the ranges"
        about = ("nothing satisfies", constraints_text)
        faults.add(message, "search", about=about, code=FaultCode.NOTHING_TO_DRAW)
        return space
    num_params, best = sum(map(drawing.admits, draws)), 1 if spec.confirm is None else spec.confirm.best
    are_all = len(draws) < DRAWS_MAX and all(_is_whole(dimension.domain) for dimension in space.dimensions)
    if num_params < best and are_all:
        message = (
            f"must be at most {num_params}, got {best}: the search space of {arm.name} has only {num_params} "
            "different params"
        )
        faults.add(message, "confirm", "best", about=("best", num_params), code=FaultCode.NOTHING_TO_DRAW)
    return space


def _check_combinations(
    arm: CheckedArm[Any],
    draws: Sequence[Assignment],
    drawing: "_Drawing",
    settings_check: SettingsCheck,
    faults: Faults,
) -> int:
    """Add faults for draws that cannot be trained; return how many the trainable's Config refuses instead."""
    num_refused = 0
    for draw in draws:
        if problem := drawing.refusal(draw):
            if settings_check.refusing and _is_rejected(draw, arm.system.settings, settings_check):
                num_refused += 1
            else:
                _note_combination(arm, draw, problem, drawing, faults)
    return num_refused


def _is_rejected(draw: Assignment, settings: Mapping[str, Any], settings_check: SettingsCheck) -> bool:
    """Return whether the trainable's Config refuses `settings` combined with `draw`."""
    settings_of_draw = assign_params(settings, draw)
    return settings_of_draw is not None and isinstance(settings_check.checked(settings_of_draw), list)


def candidates(domain: Domain, max_count: int = VALUES_MAX) -> tuple[Value, ...]:
    """Return all values of a choice or a short range; for a longer range the ends and some in between."""
    match domain:
        case Choice(values):
            return values
        case Fixed(value):
            return (value,)
        case Powers():
            return domain.values
        case Int(low, high, log, step):
            num_values = (high - low) // step + 1
            if num_values <= max_count:
                return tuple(range(low, high + 1, step))
            last = int(greatest(domain))
            exact = _spaced_values(low, last, log=log)
            lattice = {low + min(round((number - low) / step), num_values - 1) * step for number in exact}
            return (low, *sorted(lattice - {low, last}), last)
        case _:
            first, final, gap = domain.low, float(greatest(domain)), domain.step
            # Evenly spaced values may all be integers, and an integer field would accept them by chance.
            spaced = _spaced_values(first, final, log=domain.log, past=UNEVEN if gap is None else 0.0)
            inner = [number for number in spaced if first < number < final]
            if gap is not None:
                stepped = {first + round((number - first) / gap) * gap for number in inner}
                inner = sorted(stepped - {first, final})
            return (first, *inner, final)


def _spaced_values(
    low: float, high: float, count: int = BETWEEN, *, log: bool, past: float = 0.0
) -> list[float]:
    """Return evenly spaced values from `low`, shifted by the share `past` of the distance."""
    shares = [(place + past) / (count - 1) for place in range(count)]
    return [float(low * (high / low) ** share if log else low + share * (high - low)) for share in shares]


@dataclass(frozen=True)
class _Drawing:
    """Draws of an arm's search and checks of the resulting settings."""

    settings: Mapping[str, Any]
    space: Space
    variant: Callable[[Assignment], Any | list[SettingFault] | None]
    """Returns the settings with a draw as checked, all their faults, or None if a path does not exist."""
    too_large: Callable[[Any], str | None]
    _chance: random.Random = field(default_factory=lambda: random.Random(0))

    def admits(self, draw: Assignment) -> bool:
        """Return whether `draw` satisfies the constraints."""
        return all(self._holds(constraint, draw) for constraint in self.space.constraints)

    def _holds(self, constraint: Rule, draw: Assignment) -> bool:
        try:
            return admits(constraint, draw, self.settings)
        except TypeError:
            return True  # reported as a problem of the draw

    def refusal(self, draw: Assignment, *, whole: bool = False) -> str | None:
        """Return why `draw` cannot be trained; None if it can, or if constraints exclude it.

        Args:
            draw: Values by path.
            whole: Whether to also check that some machine could train it.
        """
        try:
            if not all(admits(constraint, draw, self.settings) for constraint in self.space.constraints):
                return None
        except TypeError as error:
            return str(error)
        if (variant := self.variant(draw)) is None:
            return None
        if isinstance(variant, list):
            remainder = f" (and {len(variant) - 1} more)" if len(variant) > 1 else ""
            return variant[0].message + remainder
        try:
            return self.too_large(variant) if whole else None
        except ValueError as error:
            return str(error)

    def draw(self, assignment: Assignment) -> dict[str, Value] | None:
        """Return a draw with the values `assignment` and others at random.

        None if no draw has all values of `assignment`.
        """
        params: dict[str, Value] = {}
        for dimension in self.space.dimensions:
            if exists(dimension, params, self.settings):
                if dimension.path in assignment:
                    params[dimension.path] = assignment[dimension.path]
                else:
                    params[dimension.path] = self._chance.choice(candidates(dimension.domain))
        return params if assignment.keys() <= params.keys() else None

    def draws(self, max_count: int) -> Iterator[dict[str, Value]]:
        """Yield all draws if there are at most `max_count`.

        Otherwise yield the draws of every pair of dimensions, then random draws.
        """
        dimensions = self.space.dimensions
        choices = [candidates(dimension.domain) for dimension in dimensions]
        if prod(map(len, choices)) <= max_count:
            for values in product(*choices):
                params_wanted = dict(zip(self.space.paths, values, strict=True))
                if (params := self._drop_missing_dimensions(params_wanted)) is not None:
                    yield params
            return
        pairs = list(combinations(dimensions, 2))
        for pair in pairs:
            max_pairs = max_count // (2 * len(pairs))
            for values in product(*(_some_candidates(dimension.domain, max_pairs) for dimension in pair)):
                needed = condition_values(pair[0], self.space) | condition_values(pair[1], self.space)
                pair_values = dict(zip([dimension.path for dimension in pair], values, strict=True))
                if (params := self.draw(needed | pair_values)) is not None:
                    yield params
        for _ in range(max_count):
            if (params := self.draw({})) is not None:
                yield params

    def by_chance(self, max_count: int) -> Iterator[dict[str, Value]]:
        """Yield draws with random values from the full ranges, as a sampler that has no history does."""
        for _ in range(max_count):
            params: dict[str, Value] = {}
            for dimension in self.space.dimensions:
                if exists(dimension, params, self.settings):
                    params[dimension.path] = self._any_of(dimension.domain)
            yield params

    def _any_of(self, domain: Domain) -> Value:
        if isinstance(domain, Float) and domain.step is None:
            share = self._chance.random()
            return _spaced_values(domain.low, domain.high, 2, log=domain.log, past=share)[0]
        if isinstance(domain, Int):
            return domain.low + domain.step * self._chance.randrange(count_values(domain))
        return self._chance.choice(finite_values(domain))

    def _drop_missing_dimensions(self, assignment: Assignment) -> dict[str, Value] | None:
        """Return `assignment` without dimensions that do not exist; None for duplicates.

        Assignments that differ only in non-existing dimensions give the same draw.
        """
        params: dict[str, Value] = {}
        for dimension in self.space.dimensions:
            path = dimension.path
            if exists(dimension, params, self.settings):
                params[path] = assignment[path]
            elif assignment[path] != candidates(dimension.domain)[0]:
                return None
        return params

    def impossible(self, dimension: Dimension, value: Value, *, whole: bool) -> str | None:
        """Return why no draw with `value` can be trained; None if one can, or if none is ever drawn."""
        condition_params = {**condition_values(dimension, self.space), dimension.path: value}
        if (problem := self.refusal(condition_params, whole=whole)) is None:
            return None
        for _ in range(COMPLETIONS):
            params = self.draw(condition_params)
            if params is not None and self.admits(params) and self.refusal(params, whole=whole) is None:
                return None
        return problem

    def others(self, draw: Assignment, path: str) -> Iterator[tuple[Value, bool]]:
        """Yield every value of the dimension at `path`, and whether `draw` can be trained with that value."""
        for value in candidates(self.space[path].domain):
            params = self.draw({**draw, path: value})
            if params is None:
                params = {**draw, path: value}
            yield value, self.admits(params) and self.refusal(params) is None


def _some_candidates(domain: Domain, pairs: int) -> Sequence[Value]:
    """Return candidates of a dimension, including its ends.

    Two dimensions have about `pairs` pairs of candidates.
    """
    values, max_values = candidates(domain), max(2, int(max(1, pairs) ** 0.5))
    if len(values) <= max_values:
        return values
    places = {round(place * (len(values) - 1) / (max_values - 1)) for place in range(max_values)}
    return [values[place] for place in sorted(places)]


def _check_alone(
    arm: CheckedArm[Any], dimension: Dimension, drawing: _Drawing, search: Search, faults: Faults
) -> bool:
    """Return whether every value of `dimension` can be trained in some draw; add faults for other values."""
    domain, extremes = dimension.domain, ends(dimension.domain)
    values = candidates(domain, ALONE_MAX)
    reasons: dict[int, str] = {}
    kinds: dict[str, list[int]] = {}
    for place, value in enumerate(values):
        if problem := drawing.impossible(dimension, value, whole=value in extremes):
            reasons[place] = problem
            # Messages that differ only in the value after "got" are one fault.
            kinds.setdefault(problem.partition(", got")[0], []).append(place)
    possible = [value for place, value in enumerate(values) if place not in reasons]
    has_remedy = possible and not isinstance(domain, Float)
    remedy = f". Possible are {quote_values(possible, 'and')}" if has_remedy else ""
    for kind, wrong in kinds.items():
        places = wrong
        if isinstance(domain, Float):  # report an end or one value: only a sample was tried
            places = [place for place in wrong if values[place] in extremes] or wrong[:1]
        values_text = quote_values([values[place] for place in places])
        faults.add(
            f"{arm.name} cannot be trained with {dimension.path} = {values_text}: "
            f"{reasons[places[0]]}{remedy}",
            *dimension_keys(dimension.path, search),
            about=("bounds", dimension.path, kind, values_text),
            code=FaultCode.NOTHING_TO_DRAW,
        )
    return not reasons


def _is_whole(domain: Domain) -> bool:
    """Return whether `candidates` returns all values."""
    if isinstance(domain, Int):
        return (domain.high - domain.low) // domain.step < VALUES_MAX
    return not isinstance(domain, Float)


def _note_combination(
    arm: CheckedArm[Any], draw: Assignment, problem: str, drawing: _Drawing, faults: Faults
) -> None:
    """Add a fault for values of `draw` that cannot be combined, once for all draws with the same problem."""
    about = ("together", problem.partition(", got")[0])
    if faults.has(*about):
        return
    decisive = {path for path in draw if any(fits for _, fits in drawing.others(draw, path))}
    named_paths = {path for path in draw if path.rpartition(".")[2] in problem.replace("=", " ").split()}
    paths = [path for path in draw if path in decisive | named_paths] or list(draw)
    params_text = ", ".join(f"{path} = {shown(draw[path])}" for path in paths)
    last = paths[-1]
    fitting_values = [value for value, fits in drawing.others(draw, last) if fits]
    rest = ", ".join(f"{path} = {shown(draw[path])}" for path in paths[:-1])
    remedy = f". With {rest}, {last} may be {quote_values(fitting_values)}" if fitting_values and rest else ""
    message = f"{arm.name} cannot be trained with {params_text}: {problem}{remedy}"
    faults.add(message, "search", about=about, code=FaultCode.NOTHING_TO_DRAW)
