"""Look up samplers and early stoppers by name, and validate their keywords by signature.

Samplers are classes of Optuna or custom classes. This module contains all knowledge about particular
samplers. Names, keywords and types are those of the classes' signatures; only the short names are defined
here. `sampler_check` then builds and runs the sampler. For each trial a new sampler is built, with a `seed`
if it accepts one, and reads the study.
"""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any, Final, Literal, cast, get_args

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler

from orchestrator.search.keywords import (
    is_expressible,
    is_required,
    matches_annotation,
    signature_parameters,
    type_words,
)
from search_spaces.grid import NAME as GRID
from search_spaces.wording import hint, nearest
from trainables.custom.extensions import BadName, import_named

optuna.logging.set_verbosity(optuna.logging.ERROR)


@dataclass(frozen=True, slots=True)
class Alias:
    """Alternative name for a class of Optuna, with alternative names of some keywords."""

    class_name: str
    keywords: Mapping[str, str] = field(default_factory=dict)
    """Optuna's keyword by alternative keyword."""
    advice_by_refused_keyword: Mapping[str, str] = field(default_factory=dict)
    """Advice by refused keyword, for keywords that the class of this name has in another library."""


SAMPLERS: Mapping[str, Alias] = {
    "bruteforce": Alias("BruteForceSampler"),
    "cmaes": Alias("CmaEsSampler"),
    "gp": Alias("GPSampler"),
    GRID: Alias(GRID),
    "nsga2": Alias("NSGAIISampler"),
    "nsga3": Alias("NSGAIIISampler"),
    "qmc": Alias("QMCSampler"),
    "random": Alias("RandomSampler"),
    "tpe": Alias("TPESampler"),
}
_RUNG_KEYWORDS = {"grace_steps": "min_resource", "reduction": "reduction_factor"}
_REFUSED_RAY_KEYWORDS = {
    "time_attr": "haltsweep always counts steps",
    "metric": "search.objectives names it",
    "mode": "search.objectives defines it",
    "stop_last_trials": "a trial ends with its training",
}
"""Refused keywords that all of Ray Tune's schedulers have."""
_RAY_ASHA = Alias(
    "SuccessiveHalvingPruner",
    {"grace_period": "min_resource"},
    {
        **_REFUSED_RAY_KEYWORDS,
        "max_t": "a trial ends with its training",
        "brackets": "choose hyperband, which has several",
    },
)
STOPPERS: Mapping[str, Alias] = {
    "asha": Alias("SuccessiveHalvingPruner", _RUNG_KEYWORDS),
    "hyperband": Alias("HyperbandPruner", _RUNG_KEYWORDS),
    "median": Alias("MedianPruner", {"grace_steps": "n_warmup_steps"}),
    "patient": Alias("PatientPruner", {"wrapped": "wrapped_pruner"}),
    "percentile": Alias("PercentilePruner", {"grace_steps": "n_warmup_steps"}),
    "threshold": Alias("ThresholdPruner", {"grace_steps": "n_warmup_steps"}),
    "PatientPruner": Alias("PatientPruner", {"wrapped": "wrapped_pruner"}),
    "ASHAScheduler": _RAY_ASHA,
    "AsyncHyperBandScheduler": _RAY_ASHA,
    "HyperBandScheduler": Alias("HyperbandPruner", {"max_t": "max_resource"}, _REFUSED_RAY_KEYWORDS),
    "MedianStoppingRule": Alias(
        "MedianPruner",
        {"grace_period": "n_warmup_steps", "min_samples_required": "n_min_trials"},
        {
            **_REFUSED_RAY_KEYWORDS,
            "min_time_slice": "trials run without time slices",
            "hard_stop": "stopped trials never continue",
        },
    ),
}
"""Stoppers by alternative name.

They include the schedulers of Ray Tune that stop trials by comparing them; here they count steps, not
reports.
"""
RAY_SCHEDULERS: Final = "ray.tune.schedulers."
"""Prefix of the full names of Ray Tune's schedulers."""
_POPULATION_REASON = (
    "it copies weights and settings between running trials, so none has fixed settings to confirm "
    "and to compare; use asha or median"
)
_REFUSED_STOPPERS: Mapping[str, str] = {
    "FIFOScheduler": "it stops nothing; leave the stopper out",
    "HyperBandForBOHB": "it only works with a searcher of Ray Tune; use hyperband, and tpe as the sampler",
    "PB2": _POPULATION_REASON,
    "PopulationBasedTraining": _POPULATION_REASON,
    "PopulationBasedTrainingReplay": _POPULATION_REASON,
    "ResourceChangingScheduler": "it changes the resources of running trials, which must be equal here",
}
"""Refused schedulers of Ray Tune, with the reason and an alternative."""
_REFUSED_SAMPLERS: Mapping[str, str] = {
    "GridSampler": "its argument is the search space, which the spec already has; use grid"
}
_DERIVED_KEYWORDS = {"seed": "it is derived for every trial from search.seed"}
_MIN_VALUES: Mapping[str, int] = {
    "bootstrap_count": 0,
    "dividing_parameter": 1,
    "max_resource": 1,
    "min_resource": 1,
    "n_ei_candidates": 1,
    "n_startup_trials": 0,
    "reduction_factor": 2,
}
"""Smallest valid values of keywords for which Optuna reports no clear error."""
RANDOM_TRIAL_KEYWORDS = ("n_startup_trials", "population_size")
"""Keywords of samplers for the number of random trials before the sampler chooses values."""
_STATELESS_SAMPLERS = frozenset({"BruteForceSampler", "RandomSampler", "TPESampler", GRID})
"""Samplers that use only the parameters, values and states of the study's trials."""
_SEQUENCE_SAMPLERS = frozenset({"QMCSampler"})
"""Samplers that follow one sequence, which the seed determines."""
_DEFAULT_KEYWORDS: Mapping[str, Mapping[str, Any]] = {"TPESampler": {"constant_liar": True}}
"""Keywords needed to run several trials at a time, unless the spec sets them."""


@dataclass(frozen=True, slots=True, eq=False)
class ComponentKind:
    """Samplers or stoppers: base class and tables in which names are looked up."""

    noun: str
    package: Literal["samplers", "pruners"]
    """Name of the Optuna package."""
    base: type[BaseSampler] | type[BasePruner]
    aliases: Mapping[str, Alias]
    refusal_by_name: Mapping[str, str]
    """Reason and alternative, by name, for names of other libraries that haltsweep refuses."""


SAMPLER: Final = ComponentKind("sampler", "samplers", BaseSampler, SAMPLERS, _REFUSED_SAMPLERS)
STOPPER: Final = ComponentKind("stopper", "pruners", BasePruner, STOPPERS, _REFUSED_STOPPERS)


@dataclass(frozen=True, slots=True)
class ComponentChoice:
    """A sampler or pruner class and the keywords to build it with."""

    class_name: str
    """Class of `optuna.samplers` or `optuna.pruners`, `grid`, or the dotted name of any other class."""
    keywords: Mapping[str, Any]

    @property
    def is_grid(self) -> bool:
        """Return whether all combinations are tried in turn, which needs no sampler."""
        return self.class_name == GRID

    @property
    def is_exhaustive(self) -> bool:
        """Return whether the class of Optuna keeps every combination of the space in memory."""
        return self.class_name == "BruteForceSampler"

    @property
    def is_custom(self) -> bool:
        """Return whether it is a custom class, neither of Optuna nor built-in."""
        return _is_dotted(self.class_name)

    @property
    def is_stateless(self) -> bool:
        """Return whether equal trials in a study always lead to equal draws."""
        return self.class_name in _STATELESS_SAMPLERS

    @property
    def is_seeded_once(self) -> bool:
        """Return whether all draws must use one seed."""
        return self.class_name in _SEQUENCE_SAMPLERS


@dataclass(frozen=True, slots=True)
class StopperPatience:
    """Conditions under which a stopper begins to stop trials."""

    steps: int
    """Step before which no trial is stopped."""
    trials: int
    """Number of ended or measured trials before which no trial is stopped."""
    never_stops: bool
    """Whether the stopper would keep every trial."""
    bounds: tuple[float, float] | None = None
    """Lower and upper bound outside of which trials are stopped; None if trials are compared instead."""


@dataclass(frozen=True, slots=True)
class SamplerFault:
    """One fault of a sampler or stopper, and the keyword that causes it (empty: the name)."""

    keyword: str
    message: str


class InvalidSampler(ValueError):
    """A sampler or stopper cannot be used; `refusals` contains every reason."""

    def __init__(self, refusals: Sequence[SamplerFault]) -> None:
        super().__init__("; ".join(refusal.message for refusal in refusals))
        self.faults = tuple(refusals)


def choose_sampler(component_spec: Mapping[str, Any]) -> ComponentChoice:
    """Return the sampler of `component_spec` (`name` and keywords), validated by names and types.

    Raises:
        InvalidSampler: If the class or a keyword is unknown, or a value has the wrong type.
    """
    return load_component(component_spec, SAMPLER).load_choice(component_spec)


def choose_stopper(component_spec: Mapping[str, Any]) -> ComponentChoice:
    """Return the stopper of `component_spec` (`name` and keywords), validated by names and types.

    Raises:
        InvalidSampler: If the class or a keyword is unknown, or a value has the wrong type.
    """
    return load_component(component_spec, STOPPER).load_choice(component_spec)


def make_sampler(choice: ComponentChoice, seed: int) -> BaseSampler:
    """Return a new sampler; raise the errors of its class, and TypeError if it is not a sampler."""
    seed_keyword = {"seed": seed} if "seed" in _parameters(choice.class_name, SAMPLER) else {}
    sampler = _make_component(choice, SAMPLER, seed_keyword)
    assert isinstance(sampler, BaseSampler), "_make_component checks the type"
    return sampler


def make_stopper(choice: ComponentChoice) -> BasePruner:
    """Return a new pruner; raise the errors of its class, and TypeError if it is not a pruner."""
    stopper = _make_component(choice, STOPPER, {})
    assert isinstance(stopper, BasePruner), "_make_component checks the type"
    return stopper


def _make_component(choice: ComponentChoice, kind: ComponentKind, seed_keyword: Mapping[str, int]) -> Any:
    keywords = {**_DEFAULT_KEYWORDS.get(choice.class_name, {}), **choice.keywords, **seed_keyword}
    for key, component_choice in _wrapped_stoppers(choice, kind).items():
        keywords[key] = make_stopper(component_choice)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        component = _load_class(choice.class_name, kind)(**keywords)
    if not isinstance(component, kind.base):
        base, component_type = kind.base.__name__, type(component).__name__
        raise TypeError(f"it must be an optuna.{kind.package}.{base}, got {component_type}")
    return component


def _wrapped_stoppers(choice: ComponentChoice, kind: ComponentKind) -> Mapping[str, ComponentChoice]:
    """Return the stoppers among the keywords of `choice`; raise `InvalidSampler` for an invalid one."""
    known_parameters = _parameters(choice.class_name, kind)
    return {
        key: choose_stopper(_as_component_spec(value))
        for key, value in choice.keywords.items()
        if value is not None and key in known_parameters and _takes_stopper(known_parameters[key])
    }


def _as_component_spec(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {"name": value}


def _takes_stopper(parameter: inspect.Parameter) -> bool:
    """Return whether a keyword takes a stopper, written like `search.stopper`."""
    return BasePruner in (get_args(parameter.annotation) or (parameter.annotation,))


def stopper_patience(stopper: ComponentChoice) -> StopperPatience:
    """Return the conditions under which `stopper` begins to stop trials, from keywords and defaults."""
    known_parameters = _parameters(stopper.class_name, STOPPER)
    for wrapped in _wrapped_stoppers(stopper, STOPPER).values():
        return stopper_patience(wrapped)  # wrapped and wrapping stopper must agree

    def integer_keyword(keyword: str) -> int:
        default = known_parameters[keyword].default if keyword in known_parameters else 0
        value = stopper.keywords.get(keyword, default)
        return value if isinstance(value, int) else 0  # the value may be determined from the first trial

    rungs = integer_keyword("reduction_factor") ** integer_keyword("min_early_stopping_rate")
    return StopperPatience(
        steps=integer_keyword("n_warmup_steps") or integer_keyword("min_resource") * rungs,
        trials=max(
            integer_keyword("n_startup_trials"),
            integer_keyword("n_min_trials"),
            integer_keyword("bootstrap_count"),
        ),
        never_stops=stopper.keywords.get("percentile") == 100,
        bounds=_threshold_bounds(stopper) if stopper.class_name == "ThresholdPruner" else None,
    )


def _threshold_bounds(stopper: ComponentChoice) -> tuple[float, float]:
    lower, upper = (stopper.keywords.get(keyword) for keyword in ("lower", "upper"))
    return (-inf if lower is None else float(lower), inf if upper is None else float(upper))


@dataclass(frozen=True, slots=True)
class NamedComponent:
    """A sampler or stopper class with its signature and its name in messages."""

    label: str
    alias: Alias
    parameters: Mapping[str, inspect.Parameter]
    is_optuna_class: bool

    def load_choice(self, component_spec: Mapping[str, Any]) -> ComponentChoice:
        """Return the class and keywords of `component_spec`, validated by names and types.

        Raises:
            InvalidSampler: If the class or a keyword is unknown, or a value has the wrong type.
        """
        names = self.alias.keywords
        written_keys = {names.get(key, key): key for key in component_spec if key != "name"}
        missing = self.required_keywords - set(written_keys)
        duplicate_keys = [key for key in component_spec if key != names.get(key, key) in component_spec]
        refusals = [
            SamplerFault("", f"{self.label} requires {self.alternative_name(key)}") for key in missing
        ]
        refusals += [
            SamplerFault(key, f"{key} is another name of {names[key]}: remove one of them")
            for key in duplicate_keys
        ]
        for keyword, key in written_keys.items():
            refusals += self._refusals(key, keyword, component_spec[key])
        if refusals:
            raise InvalidSampler(refusals)
        return ComponentChoice(
            self.alias.class_name, {keyword: component_spec[key] for keyword, key in written_keys.items()}
        )

    @property
    def required_keywords(self) -> set[str]:
        """Return the keywords that must be given."""
        return {
            key
            for key, takes in self.parameters.items()
            if is_required(takes) and key not in _DERIVED_KEYWORDS
        }

    def alternative_name(self, keyword: str) -> str:
        """Return the alternative name of a keyword of the class."""
        return next((name for name, target in self.alias.keywords.items() if target == keyword), keyword)

    def _refusals(self, keyword_path: str, keyword: str, value: Any) -> Iterator[SamplerFault]:
        """Yield the faults of one keyword."""
        parameter = self.parameters.get(keyword)
        if keyword in _DERIVED_KEYWORDS:
            yield SamplerFault(
                keyword_path, f"{self.label} must not be given {keyword_path}: {_DERIVED_KEYWORDS[keyword]}"
            )
        elif keyword_path in self.alias.advice_by_refused_keyword:
            reason = self.alias.advice_by_refused_keyword[keyword_path]
            yield SamplerFault(
                keyword_path, f"{self.label} does not accept {keyword_path} in haltsweep: {reason}"
            )
        elif parameter is not None and _takes_stopper(parameter):
            yield from _wrapped_stopper_refusals(keyword_path, value)
        elif parameter is None or not is_expressible(parameter):
            if parameter is not None or not self._accepts_any_keyword:
                advice = hint(keyword_path, self._known_keywords())
                message = f"{self.label} has no keyword {keyword_path!r}. {advice}"
                yield SamplerFault(keyword_path, message)
        elif not matches_annotation(value, parameter):
            yield SamplerFault(keyword_path, f"{keyword_path} must be {type_words(parameter)}, got {value!r}")
        elif (
            self.is_optuna_class
            and isinstance(value, int | float)
            and value < _MIN_VALUES.get(keyword, value)
        ):
            yield SamplerFault(
                keyword_path, f"{keyword_path} must be at least {_MIN_VALUES[keyword]}, got {value!r}"
            )

    @property
    def _accepts_any_keyword(self) -> bool:
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in self.parameters.values())

    def _known_keywords(self) -> list[str]:
        return sorted(
            self.alternative_name(key)
            for key, parameter in self.parameters.items()
            if (is_expressible(parameter) or _takes_stopper(parameter)) and key not in _DERIVED_KEYWORDS
        )


def _wrapped_stopper_refusals(keyword_path: str, value: Any) -> Iterator[SamplerFault]:
    """Yield the errors in a stopper that another stopper wraps."""
    if value is None:
        return
    if not isinstance(value, str | Mapping):
        yield SamplerFault(keyword_path, f"{keyword_path} must be a stopper, or null, got {value!r}")
        return
    try:
        choose_stopper(_as_component_spec(value))
    except InvalidSampler as error:
        yield from (
            SamplerFault(keyword_path, f"{keyword_path}: {refusal.message}") for refusal in error.faults
        )


def load_component(component_spec: Mapping[str, Any], kind: ComponentKind) -> NamedComponent:
    """Return the class that `component_spec` names.

    Raises:
        InvalidSampler: If there is none.
    """
    name = str(component_spec.get("name"))
    ray_name = _ray_short_name(name, kind)
    optuna_name = _optuna_short_name(name, kind)
    alias = kind.aliases.get(ray_name) or kind.aliases.get(optuna_name) or Alias(optuna_name)
    if reason := kind.refusal_by_name.get(ray_name):
        raise InvalidSampler([SamplerFault("", f"{kind.noun} {name!r} cannot be used: {reason}")])
    is_optuna_class = alias.class_name in optuna_parameters(kind)
    if not is_optuna_class and alias.class_name != GRID and not _is_dotted(alias.class_name):
        message = f"no {kind.noun} named {name!r}. {hint(name, known_names(kind))}"
        raise InvalidSampler([SamplerFault("", message)])
    return NamedComponent(
        f"{kind.noun} {name!r}", alias, _parameters(alias.class_name, kind), is_optuna_class
    )


def _is_dotted(name: str) -> bool:
    return "." in name or ":" in name


def _optuna_short_name(name: str, kind: ComponentKind) -> str:
    """Return the short name of a class of Optuna whose full name is `name`; any other name unchanged."""
    module, _, class_name = name.replace(":", ".").rpartition(".")
    return (
        class_name if module == f"optuna.{kind.package}" and class_name in optuna_parameters(kind) else name
    )


def _ray_short_name(name: str, kind: ComponentKind) -> str:
    """Return the short name of a Ray Tune scheduler whose full name is `name`; any other name unchanged."""
    module, _, class_name = name.replace(":", ".").rpartition(".")
    is_ray_scheduler = f"{module}.".startswith(RAY_SCHEDULERS) and (
        class_name in kind.aliases or class_name in kind.refusal_by_name
    )
    return class_name if is_ray_scheduler else name


def _load_class(name: str, kind: ComponentKind) -> Callable[..., Any]:
    """Return the class or function that builds the sampler or stopper `name`.

    Raises:
        InvalidSampler: If there is none, or it must not be called.
    """
    if not _is_dotted(name):
        return cast(Callable[..., Any], getattr(getattr(optuna, kind.package), name))
    module_name, _, attribute_path = name.partition(":") if ":" in name else name.rpartition(".")
    try:
        target: Any = import_named(module_name, f"a {kind.noun}'s module")
        for part in attribute_path.split("."):
            target = getattr(target, part)
    except BadName as error:
        raise InvalidSampler([SamplerFault("", str(error))]) from error
    except AttributeError as error:
        suggestion = nearest(attribute_path, dir(sys.modules[module_name]))
        question = f". Did you mean {suggestion!r}?" if suggestion is not None else f": {error}"
        raise InvalidSampler(
            [SamplerFault("", f"{module_name} has no {attribute_path}{question}")]
        ) from error
    if not callable(target):
        raise InvalidSampler([SamplerFault("", f"{name} must be a class, got {type(target).__name__}")])
    if reason := _reason_not_callable(target, kind):
        raise InvalidSampler([SamplerFault("", f"{kind.noun} {name!r} cannot be used: {reason}")])
    constructor: Callable[..., Any] = target
    return constructor


def _reason_not_callable(target: Callable[..., Any], kind: ComponentKind) -> str | None:
    """Return why a plan must not call the object of a dotted name; None if it may.

    A function must declare its result. Otherwise any function, such as `os.system`, would be called.
    """
    base = f"optuna.{kind.package}.{kind.base.__name__}"
    if inspect.isclass(target):
        return None if issubclass(target, kind.base) else f"it must be an {base}, got {target.__name__}"
    try:
        signature = inspect.signature(target, eval_str=True)
    except Exception:  # a builtin without a signature, or an annotation with an unknown name
        signature = inspect.Signature()
    result_type, known_parameters = signature.return_annotation, signature.parameters
    if (inspect.isclass(result_type) and issubclass(result_type, kind.base)) or (
        kind.base is BaseSampler and "seed" in known_parameters
    ):
        return None
    target_name = getattr(target, "__name__", type(target).__name__)
    sign = " or takes a keyword seed" if kind.base is BaseSampler else ""
    return (
        f"it must be an {base}, or a function with the return annotation `-> {kind.base.__name__}`"
        f"{sign}, got the function {target_name}"
    )


def _parameters(name: str, kind: ComponentKind) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of the class `name`.

    Raises:
        InvalidSampler: If there is no such class, or its signature is not available.
    """
    if name == GRID:
        return {}
    known_parameters = optuna_parameters(kind)
    if name in known_parameters:
        return known_parameters[name]
    try:
        return signature_parameters(_load_class(name, kind))
    except ValueError as error:
        if isinstance(error, InvalidSampler):
            raise
        raise InvalidSampler([SamplerFault("", f"{kind.noun} {name!r} cannot be used: {error}")]) from error


def known_names(kind: ComponentKind) -> list[str]:
    """Return every valid name without a dot, alternative names first."""
    return sorted(kind.aliases) + sorted(optuna_parameters(kind).keys() - kind.aliases.keys())


@cache
def optuna_parameters(kind: ComponentKind) -> Mapping[str, Mapping[str, inspect.Parameter]]:
    """Return the parameters of every class of Optuna that YAML can describe, by class name."""
    parameters_by_class: dict[str, Mapping[str, inspect.Parameter]] = {}
    for name in getattr(optuna, kind.package).__all__:
        constructor = _load_class(name, kind)
        is_left_out = name.startswith("Base") or name == "NopPruner" or name in kind.refusal_by_name
        if is_left_out or not inspect.isclass(constructor):
            continue
        class_parameters = signature_parameters(constructor)
        if all(
            is_expressible(parameter) or (kind is STOPPER and _takes_stopper(parameter))
            for parameter in filter(is_required, class_parameters.values())
        ):
            parameters_by_class[name] = class_parameters
    return parameters_by_class
