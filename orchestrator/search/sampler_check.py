"""Validate samplers and stoppers by running them in a small study, since many errors occur only then."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection

from orchestrator.search.samplers import (
    SAMPLER,
    STOPPER,
    ComponentChoice,
    InvalidSampler,
    NamedComponent,
    SamplerFault,
    load_component,
    make_sampler,
    make_stopper,
)
from orchestrator.search.suggestions import suggest
from search_spaces.dimensions import Domain, Float, Int, Value
from search_spaces.grid import COUNTED_MAX, count_values, is_finite
from search_spaces.wording import format_value
from trainables.custom.extensions import describe_error

Component = TypeVar("Component")

_SMALL_SPACE = (Int(0, 3), Float(0.0, 1.0, step=0.25))
_REPORT_STEPS = (1, 10, 100, 1000)
_NUM_TRIALS = 2
_NUM_REPEATED_TRIALS = (
    20  # with few values each, two different samplers agree in less than one case of a million
)


def check_sampler(component_spec: Mapping[str, Any], objectives: int, space: Sequence[Domain] = ()) -> None:
    """Validate a sampler by searching `space` with it.

    Args:
        component_spec: Name and keywords of the sampler.
        objectives: Number of objectives.
        space: Domains of the search space; empty for a small default space.

    Raises:
        InvalidSampler: If the sampler cannot be used.
    """
    component = load_component(component_spec, SAMPLER)
    choice = component.load_choice(component_spec)
    if choice.is_grid:
        return
    if choice.is_exhaustive and (size := _num_combinations(space)) > COUNTED_MAX:
        message = (
            f"{component.label} stores all combinations in memory, at most {COUNTED_MAX:,}, "
            f"got {size:,}: remove values, or choose another sampler"
        )
        raise InvalidSampler([SamplerFault("", message)])
    failure = _error_text(_try_sampler, choice, objectives, space)
    if failure and objectives > 1 and failure != _error_text(_try_sampler, choice, 1, space):
        message = (
            f"{component_spec['name']} searches for one objective, got {objectives}: choose nsga2 or tpe"
        )
        raise InvalidSampler([SamplerFault("", message)])
    if failure:
        _require_success(component, choice, lambda used_choice: _try_sampler(used_choice, 1, space))


def _num_combinations(space: Sequence[Domain]) -> int:
    """Return the number of combinations of the finite domains."""
    return prod(count_values(domain) for domain in space if is_finite(domain))


def check_stopper(component_spec: Mapping[str, Any]) -> ComponentChoice:
    """Let the stopper judge a few trials, and return it.

    Raises:
        InvalidSampler: If the stopper cannot be used.
    """
    component = load_component(component_spec, STOPPER)
    choice = component.load_choice(component_spec)
    low, high = (choice.keywords.get(f"{end}_resource") for end in ("min", "max"))
    if isinstance(low, int) and isinstance(high, int) and low >= high:
        least, most = component.alternative_name("min_resource"), component.alternative_name("max_resource")
        raise InvalidSampler([SamplerFault(most, f"{most} must be more than {least}, {low}, got {high}")])
    _require_success(component, choice, _try_stopper)
    return choice


def run_check(check: Callable[[], Component]) -> tuple[Component | None, Sequence[SamplerFault]]:
    """Return the result of `check` without refusals; if `check` fails, None and the refusals."""
    try:
        return check(), ()
    except InvalidSampler as error:
        return None, error.faults


def _require_success(
    component: NamedComponent, choice: ComponentChoice, try_component: Callable[[ComponentChoice], None]
) -> None:
    """Raise `InvalidSampler` if `try_component` fails, for each keyword that fails alone, or else for all."""
    if not (failure := _error_text(try_component, choice)):
        return
    required_keywords = {
        key: value for key, value in choice.keywords.items() if key in component.required_keywords
    }
    reasons = {}
    if len(choice.keywords) == 1 or not _error_text(
        try_component, replace(choice, keywords=required_keywords)
    ):
        for key, value in choice.keywords.items():
            if reason := _error_text(
                try_component, replace(choice, keywords=required_keywords | {key: value})
            ):
                spec_keyword = component.alternative_name(key)
                reasons[spec_keyword] = (
                    f"with {spec_keyword} = {format_value(value)}: {reason.replace(key, spec_keyword)}"
                )
    if not reasons:
        reasons[""] = f"with these keywords: {failure}"
    sentence = f"{component.label} cannot be used"
    raise InvalidSampler([SamplerFault(key, f"{sentence} {reason}") for key, reason in reasons.items()])


def _error_text(try_component: Callable[..., None], *arguments: Any) -> str:
    """Return the error of `try_component` on one line; empty if it succeeds."""
    try:
        try_component(*arguments)
    except ModuleNotFoundError as error:
        return f"it needs the package {error.name}: pip install {error.name}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an error of the library: with any error, the search could not run
        is_library_error = type(error) in (
            ValueError,
            TypeError,
        )  # messages that the library addresses to its user
        return str(error).partition("\n")[0] if is_library_error else describe_error(error)
    return ""


def _try_sampler(choice: ComponentChoice, objectives: int, space: Sequence[Domain]) -> None:
    """Run the sampler for a few trials, with as few random startup trials as its keywords permit.

    Raises:
        ValueError: If another instance draws other values, since resuming a search needs equal values.
    """
    if "n_startup_trials" in load_component({"name": choice.class_name}, SAMPLER).parameters:
        choice = replace(choice, keywords={**choice.keywords, "n_startup_trials": 1})

    trials = _NUM_REPEATED_TRIALS if choice.is_custom else _NUM_TRIALS

    def draw_values() -> list[Value]:
        return _run_study(lambda number: make_sampler(choice, number), None, objectives, space, trials)

    first_values = draw_values()
    if choice.is_custom and first_values != draw_values():
        raise ValueError(
            "a second instance with the same seed draws other values, so a search could not be resumed; "
            "make all draws depend only on a keyword argument `seed` and on the study"
        )


def _try_stopper(choice: ComponentChoice) -> None:
    _run_study(lambda number: optuna.samplers.RandomSampler(seed=number), make_stopper(choice), 1, ())


def _run_study(
    sampler: Callable[[int], BaseSampler],
    stopper: BasePruner | None,
    objectives: int,
    space: Sequence[Domain],
    trials: int = _NUM_TRIALS,
) -> list[Value]:
    """Return the values drawn in a study of a few trials, each with a new sampler."""
    drawn_trials = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        directions = [StudyDirection.MAXIMIZE] * objectives
        study = optuna.create_study(directions=directions, sampler=sampler(0), pruner=stopper)
        for number in range(trials):
            study.sampler = sampler(number)
            trial = study.ask()
            domains = enumerate(space or _SMALL_SPACE)
            drawn_trials += [suggest(trial, f"x{place}", domain) for place, domain in domains]
            value = 1.0 / (1 + number)
            for step in _REPORT_STEPS if stopper is not None else ():
                trial.report(value, step)
                trial.should_prune()
            # Some samplers stop the optimisation loop of Optuna when all points are visited; no loop runs
            # here.
            study.sampler = optuna.samplers.RandomSampler(seed=0)
            study.tell(trial, [value] * objectives)
    return drawn_trials
