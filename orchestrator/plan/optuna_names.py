"""Which samplers and early stoppers exist and what they take, read from Optuna's source, never importing it.

Optuna takes about a second to import and a plan needs only its signatures. The installed version's own files
are parsed, so that nothing here has to follow its releases; only the short names are ours.
"""

import ast
import importlib.util
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from search_spaces.wording import hint

Package = Literal["samplers", "pruners"]


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
ONE_OBJECTIVE_ONLY = frozenset({"CmaEsSampler"})
_NEEDS_PACKAGE = {"CmaEsSampler": "cmaes"}
_OURS = {"seed": "it is derived for every trial from search.seed"}
_SCALARS: Mapping[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
_LIMITS: Mapping[str, tuple[float, float]] = {
    "bootstrap_count": (0, math.inf),
    "dividing_parameter": (1, math.inf),
    "interval_steps": (1, math.inf),
    "min_early_stopping_rate": (0, math.inf),
    "min_resource": (1, math.inf),
    "n_ei_candidates": (1, math.inf),
    "n_min_trials": (1, math.inf),
    "n_startup_steps": (0, math.inf),
    "n_startup_trials": (0, math.inf),
    "n_warmup_steps": (0, math.inf),
    "percentile": (0, 100),
    "population_size": (2, math.inf),
    "reduction_factor": (2, math.inf),
}
"""Optuna refuses values outside only when it builds the object, which is after the plan."""


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


class Refused(ValueError):
    """A sampler or stopper that Optuna could not build; `refusals` holds every reason."""

    def __init__(self, refusals: tuple[Refusal, ...]) -> None:
        super().__init__("; ".join(refusal.message for refusal in refusals))
        self.refusals = refusals


@dataclass(frozen=True, slots=True)
class _Parameter:
    types: frozenset[str]
    required: bool

    @property
    def writable(self) -> bool:
        """Whether YAML can express at least one of its values other than null."""
        return bool(self.types & _SCALARS.keys())


@dataclass(frozen=True, slots=True)
class _Target:
    """The class that was asked for, as messages call it and as Optuna declares it."""

    label: str
    alias: Alias
    parameters: Mapping[str, _Parameter]

    def writable_keywords(self) -> list[str]:
        ours = {optuna: ours for ours, optuna in self.alias.keywords.items()}
        return sorted(
            ours.get(key, key) for key, each in self.parameters.items() if each.writable and key not in _OURS
        )


def chosen_sampler(given: Mapping[str, Any]) -> Chosen:
    """What `given` (`name` and keywords) builds. Raises `Refused`."""
    return _chosen(given, "samplers", SAMPLERS, "sampler")


def chosen_stopper(given: Mapping[str, Any]) -> Chosen:
    """What `given` (`name` and keywords) builds. Raises `Refused`."""
    return _chosen(given, "pruners", STOPPERS, "stopper")


def _chosen(given: Mapping[str, Any], package: Package, aliases: Mapping[str, Alias], noun: str) -> Chosen:
    name = str(given.get("name"))
    classes = constructors(package)
    usable = {key for key, parameters in classes.items() if _buildable(parameters)}
    if name not in aliases and name not in usable:
        names = sorted(aliases) + sorted(usable)
        raise Refused((Refusal("", f"no {noun} named {name!r}. {hint(name, names)}"),))
    alias = aliases.get(name) or Alias(name)
    target = _Target(f"{noun} {name!r}", alias, classes[alias.class_name])
    written = {alias.keywords.get(key, key): key for key in given if key != "name"}
    refusals = [
        *_absent(target, written.keys()),
        *(each for keyword, key in written.items() for each in _refusals(target, key, keyword, given[key])),
    ]
    if refusals:
        raise Refused(tuple(refusals))
    return Chosen(alias.class_name, {keyword: given[key] for keyword, key in written.items()})


def _buildable(parameters: Mapping[str, _Parameter]) -> bool:
    return all(parameter.writable for parameter in parameters.values() if parameter.required)


def _absent(target: _Target, keywords: Collection[str]) -> list[Refusal]:
    """What must be there and is not: packages and required keywords."""
    package = _NEEDS_PACKAGE.get(target.alias.class_name)
    if package and importlib.util.find_spec(package) is None:
        return [Refusal("", f"{target.label} needs the package {package}: pip install {package}")]
    absent = [key for key, each in target.parameters.items() if each.required and key not in keywords]
    refusals = [Refusal("", f"{target.label} must be given {key}") for key in absent]
    if target.alias.class_name == "ThresholdPruner" and not {"lower", "upper"} & set(keywords):
        refusals.append(Refusal("", f"{target.label} must be given lower or upper"))
    return refusals


def _refusals(target: _Target, written: str, keyword: str, value: Any) -> list[Refusal]:
    """Everything wrong with one keyword; at most one refusal."""
    parameter = target.parameters.get(keyword)
    if keyword in _OURS:
        return [Refusal(written, f"{target.label} must not be given {written}: {_OURS[keyword]}")]
    if parameter is None or not parameter.writable:
        allowed = target.writable_keywords()
        message = f"{target.label} has no keyword {written!r}. {hint(written, allowed)}"
        return [Refusal(written, message)]
    if not _fits(value, parameter.types):
        types = " or ".join(sorted(parameter.types & {*_SCALARS, "None"}))
        return [Refusal(written, f"{written} must be {types}, got {value!r}")]
    low, high = _LIMITS.get(keyword, (-math.inf, math.inf))
    if isinstance(value, int | float) and not low <= value <= high:
        limits = f"at least {low}" if high == math.inf else f"between {low} and {high}"
        return [Refusal(written, f"{written} must be {limits}, got {value!r}")]
    return []


def _fits(value: Any, types: frozenset[str]) -> bool:
    if value is None:
        return "None" in types
    if isinstance(value, bool):
        return "bool" in types
    if isinstance(value, int) and "float" in types:
        return True
    return any(name in types and isinstance(value, kind) for name, kind in _SCALARS.items())


@cache
def constructors(package: Package) -> Mapping[str, Mapping[str, _Parameter]]:
    """Parameters of every public class of `optuna.<package>`, by class name."""
    root = _optuna_folder()
    exports = _exports(root / package / "__init__.py")
    found: dict[str, Mapping[str, _Parameter]] = {}
    for class_name, module in exports.items():
        path = root.parent.joinpath(*module.split("."))
        source = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        if not class_name.startswith("Base") and class_name != "NopPruner":
            found[class_name] = _init_parameters(source, class_name)
    return found


def _optuna_folder() -> Path:
    spec = importlib.util.find_spec("optuna")
    assert spec is not None
    assert spec.origin is not None, "optuna is a dependency of this package"
    return Path(spec.origin).parent


def _exports(init: Path) -> dict[str, str]:
    """Class name to the module it is imported from, as written in a package's `__init__.py`."""
    return {
        alias.name: node.module
        for node in ast.parse(init.read_text()).body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("optuna.")
        for alias in node.names
        if alias.name[0].isupper()
    }


def _init_parameters(source: Path, class_name: str) -> Mapping[str, _Parameter]:
    tree = ast.parse(source.read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    init = next(
        (node for node in body if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None
    )
    if init is None:
        return {}
    positional = [*init.args.posonlyargs, *init.args.args]
    without_default = len(positional) - len(init.args.defaults)
    parameters = {
        argument.arg: _Parameter(_type_names(argument.annotation), required=place < without_default)
        for place, argument in enumerate(positional)
        if argument.arg != "self"
    }
    for argument, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
        parameters[argument.arg] = _Parameter(_type_names(argument.annotation), required=default is None)
    return parameters


def _type_names(annotation: ast.expr | None) -> frozenset[str]:
    """Members of a union annotation; `int | None` gives int and None."""
    if annotation is None:
        return frozenset()
    if isinstance(annotation, ast.BinOp):
        return _type_names(annotation.left) | _type_names(annotation.right)
    return frozenset({ast.unparse(annotation)})
