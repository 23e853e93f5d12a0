"""Samplers and early stoppers: classes of Optuna, found by inspection and tried before they are planned.

Names, keywords and types are those of the installed version's signatures; only the short names are ours.
What passes is then made and put to use in a study of a few trials, for Optuna refuses much only then.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection

from search_spaces.dimensions import Choice, Domain, Fixed, Float, Int, Value, greatest
from search_spaces.wording import hint, shown

Package = Literal["samplers", "pruners"]
optuna.logging.set_verbosity(optuna.logging.ERROR)


@dataclass(frozen=True, slots=True)
class Alias:
    """A short name for a class of Optuna, with friendlier names for some of its keywords."""

    class_name: str
    keywords: Mapping[str, str] = field(default_factory=dict)
    """Our keyword to Optuna's."""


SAMPLERS: Mapping[str, Alias] = {
    "cmaes": Alias("CmaEsSampler"),
    "gp": Alias("GPSampler"),
    "nsga2": Alias("NSGAIISampler"),
    "nsga3": Alias("NSGAIIISampler"),
    "qmc": Alias("QMCSampler"),
    "random": Alias("RandomSampler"),
    "tpe": Alias("TPESampler"),
}
STOPPERS: Mapping[str, Alias] = {
    "asha": Alias(
        "SuccessiveHalvingPruner", {"grace_steps": "min_resource", "reduction": "reduction_factor"}
    ),
    "hyperband": Alias("HyperbandPruner", {"grace_steps": "min_resource", "reduction": "reduction_factor"}),
    "median": Alias("MedianPruner", {"grace_steps": "n_warmup_steps"}),
    "percentile": Alias("PercentilePruner", {"grace_steps": "n_warmup_steps"}),
    "threshold": Alias("ThresholdPruner", {"grace_steps": "n_warmup_steps"}),
}
_DERIVED = {"seed": "it is derived for every trial from search.seed"}
_SCALARS: Mapping[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
_LEAST: Mapping[str, int] = {
    "bootstrap_count": 0,
    "dividing_parameter": 1,
    "max_resource": 1,
    "min_resource": 1,
    "n_ei_candidates": 1,
    "n_startup_trials": 0,
    "reduction_factor": 2,
}
"""What Optuna takes without a word, or stumbles over with one of Python's."""
_SMALL = (Int(0, 3), Float(0.0, 1.0, step=0.25))
_TRIED_STEPS = (1, 10, 100, 1000)
_TRIED_TRIALS = 2


@dataclass(frozen=True, slots=True)
class Chosen:
    """A class of `optuna.samplers` or `optuna.pruners` and the keywords to build it with."""

    class_name: str
    keywords: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One fault of a sampler or stopper: the keyword it is about (empty: the name) and what is wrong."""

    keyword: str
    message: str


class SamplerRefused(ValueError):
    """A sampler or stopper that cannot be used; `refusals` holds every reason."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__("; ".join(refusal.message for refusal in refusals))
        self.refusals = tuple(refusals)


def chosen_sampler(given: Mapping[str, Any]) -> Chosen:
    """What `given` (`name` and keywords) builds, as far as names and types tell. Raises `SamplerRefused`."""
    return _target(given, "samplers", SAMPLERS, "sampler").chosen(given)


def chosen_stopper(given: Mapping[str, Any]) -> Chosen:
    """What `given` (`name` and keywords) builds, as far as names and types tell. Raises `SamplerRefused`."""
    return _target(given, "pruners", STOPPERS, "stopper").chosen(given)


def check_sampler(given: Mapping[str, Any], objectives: int, space: Sequence[Domain] = ()) -> None:
    """Make the sampler and let it search `space` for so many objectives. Raises `SamplerRefused`."""
    target = _target(given, "samplers", SAMPLERS, "sampler")
    chosen = target.chosen(given)
    failure = _failure(_use_sampler, chosen, objectives, space)
    if failure and objectives > 1 and failure != _failure(_use_sampler, chosen, 1, space):
        message = f"{given['name']} searches for one objective, got {objectives}: choose nsga2 or tpe"
        raise SamplerRefused([Refusal("", message)])
    if failure:
        target.require_use(chosen, lambda chosen: _use_sampler(chosen, 1, space))


def check_stopper(given: Mapping[str, Any]) -> Chosen:
    """Make the stopper and let it judge a few trials; what was made. Raises `SamplerRefused`."""
    target = _target(given, "pruners", STOPPERS, "stopper")
    chosen = target.chosen(given)
    low, high = (chosen.keywords.get(f"{end}_resource") for end in ("min", "max"))
    if isinstance(low, int) and isinstance(high, int) and low >= high:
        name = target.written("min_resource")
        raise SamplerRefused(
            [Refusal("max_resource", f"max_resource must be more than {name}, {low}, got {high}")]
        )
    target.require_use(chosen, _use_stopper)
    return chosen


def make_sampler(chosen: Chosen, seed: int) -> BaseSampler:
    """A fresh one."""
    keywords: dict[str, Any] = {"constant_liar": True} if chosen.class_name == "TPESampler" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = getattr(optuna.samplers, chosen.class_name)(**(keywords | dict(chosen.keywords)), seed=seed)
    assert isinstance(made, BaseSampler)
    return made


def suggest(trial: optuna.Trial, name: str, domain: Domain) -> Value:
    """A value of `domain`, as the trial's sampler draws it."""
    match domain:
        case Fixed(value):
            return value
        case Choice(values):
            # By position: Optuna takes True for 1, and would warn of choices it cannot store.
            return values[trial.suggest_categorical(name, range(len(values)))]
        case Float(low, high, log, step):
            with warnings.catch_warnings():
                # Of a step that leaves a rest: the last value is then below the high end, as it should be.
                warnings.filterwarnings("ignore", message=".*is not divisible by `step`")
                return trial.suggest_float(name, low, high, log=log, step=step)
        case _:
            last = int(greatest(domain))
            return trial.suggest_int(name, domain.low, last, log=domain.log, step=domain.step)


def make_stopper(chosen: Chosen) -> BasePruner:
    """A fresh one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = getattr(optuna.pruners, chosen.class_name)(**chosen.keywords)
    assert isinstance(made, BasePruner)
    return made


@dataclass(frozen=True, slots=True)
class _Target:
    """The class that was asked for, as messages call it and as Optuna declares it."""

    label: str
    alias: Alias
    parameters: Mapping[str, inspect.Parameter]

    def chosen(self, given: Mapping[str, Any]) -> Chosen:
        """What `given` builds, as far as names and types tell. Raises `SamplerRefused`."""
        written = {self.alias.keywords.get(key, key): key for key in given if key != "name"}
        required = [key for key, each in self.parameters.items() if _required(each)]
        twice = [each for each in given if each != self.alias.keywords.get(each, each) in given]
        refusals = [
            *(Refusal("", f"{self.label} must be given {key}") for key in required if key not in written),
            *(Refusal(each, f"{each} is {self.alias.keywords[each]}: give one of them") for each in twice),
            *(each for keyword, key in written.items() for each in self._refusals(key, keyword, given[key])),
        ]
        if refusals:
            raise SamplerRefused(refusals)
        return Chosen(self.alias.class_name, {keyword: given[key] for keyword, key in written.items()})

    def require_use(self, chosen: Chosen, use: Callable[[Chosen], None]) -> None:
        """Put it to use. Raises `SamplerRefused`, for each keyword that Optuna refuses alone, or for all."""
        if not (failure := _failure(use, chosen)):
            return
        needed = {key: value for key, value in chosen.keywords.items() if _required(self.parameters[key])}
        found = {}
        if len(chosen.keywords) == 1 or not _failure(use, replace(chosen, keywords=needed)):
            for key, value in chosen.keywords.items():
                if why := _failure(use, replace(chosen, keywords=needed | {key: value})):
                    word = self.written(key)
                    found[word] = f"with {word} = {shown(value)}: {why.replace(key, word)}"
        refusals = found or {"": f"as asked: {failure}"}
        raise SamplerRefused(
            [Refusal(key, f"{self.label} cannot be used {why}") for key, why in refusals.items()]
        )

    def written(self, keyword: str) -> str:
        """Our word for a keyword of Optuna's."""
        return next((ours for ours, theirs in self.alias.keywords.items() if theirs == keyword), keyword)

    def _refusals(self, written: str, keyword: str, value: Any) -> Iterator[Refusal]:
        """Everything wrong with one keyword; at most one refusal."""
        types = _types(self.parameters[keyword]) if keyword in self.parameters else frozenset()
        if keyword in _DERIVED:
            yield Refusal(written, f"{self.label} must not be given {written}: {_DERIVED[keyword]}")
        elif not types & _SCALARS.keys():
            yield Refusal(written, f"{self.label} has no keyword {written!r}. {hint(written, self._known())}")
        elif not _fits(value, types):
            names = " or ".join(sorted(types & {*_SCALARS, "None"}))
            yield Refusal(written, f"{written} must be {names}, got {value!r}")
        elif not isinstance(value, str) and value is not None and value < _LEAST.get(keyword, value):
            yield Refusal(written, f"{written} must be at least {_LEAST[keyword]}, got {value!r}")

    def _known(self) -> list[str]:
        return sorted(
            self.written(key)
            for key, each in self.parameters.items()
            if _types(each) & _SCALARS.keys() and key not in _DERIVED
        )


def _target(given: Mapping[str, Any], package: Package, aliases: Mapping[str, Alias], noun: str) -> _Target:
    name, usable = str(given.get("name")), constructors(package)
    if name not in aliases and name not in usable:
        names = sorted(aliases) + sorted(usable)
        raise SamplerRefused([Refusal("", f"no {noun} named {name!r}. {hint(name, names)}")])
    alias = aliases.get(name) or Alias(name)
    return _Target(f"{noun} {name!r}", alias, usable[alias.class_name])


@cache
def constructors(package: Package) -> Mapping[str, Mapping[str, inspect.Parameter]]:
    """Parameters of every class of `optuna.<package>` that YAML can describe, by class name."""
    module = getattr(optuna, package)
    found: dict[str, Mapping[str, inspect.Parameter]] = {}
    for name in module.__all__:
        made = getattr(module, name)
        if not inspect.isclass(made) or name.startswith("Base") or name == "NopPruner":
            continue
        parameters = inspect.signature(made).parameters
        if all(_types(each) & _SCALARS.keys() for each in parameters.values() if _required(each)):
            found[name] = parameters
    return found


def _types(parameter: inspect.Parameter) -> frozenset[str]:
    """Members of a union annotation; `int | None` gives int and None."""
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return frozenset(part.strip() for part in text.split("|"))


def _fits(value: Any, types: frozenset[str]) -> bool:
    if value is None:
        return "None" in types
    if isinstance(value, bool):
        return "bool" in types
    if isinstance(value, int) and "float" in types:
        return True
    return any(name in types and isinstance(value, kind) for name, kind in _SCALARS.items())


def _required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _failure(use: Callable[..., None], *given: Any) -> str:
    """Why `use` fails, on one line; empty if it does not."""
    try:
        use(*given)
    except ModuleNotFoundError as error:
        return f"it needs the package {error.name}: pip install {error.name}"
    except Exception as error:  # a library's own: whatever it is, the search could not run
        message = str(error).partition("\n")[0]
        return message if isinstance(error, ValueError | TypeError) else f"{type(error).__name__}: {message}"
    return ""


def _use_sampler(chosen: Chosen, objectives: int, space: Sequence[Domain]) -> None:
    """Ask a few times, with as few draws at random before the sampler's own as it can be made to take."""
    if "n_startup_trials" in constructors("samplers")[chosen.class_name]:
        chosen = replace(chosen, keywords={**chosen.keywords, "n_startup_trials": 1})
    _study(make_sampler(chosen, 0), None, objectives, space)


def _use_stopper(chosen: Chosen) -> None:
    _study(optuna.samplers.RandomSampler(seed=0), make_stopper(chosen), 1, ())


def _study(
    sampler: BaseSampler, stopper: BasePruner | None, objectives: int, space: Sequence[Domain]
) -> None:
    """A study of a few trials."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        directions = [StudyDirection.MAXIMIZE] * objectives
        study = optuna.create_study(directions=directions, sampler=sampler, pruner=stopper)
        for number in range(_TRIED_TRIALS):
            trial = study.ask()
            for place, domain in enumerate(space or _SMALL):
                suggest(trial, f"x{place}", domain)
            value = 1.0 / (1 + number)
            for step in _TRIED_STEPS if stopper is not None else ():
                trial.report(value, step)
                trial.should_prune()
            # Some samplers would stop a loop that is not there once all is visited.
            study.sampler = optuna.samplers.RandomSampler(seed=0)
            study.tell(trial, [value] * objectives)
            study.sampler = sampler
