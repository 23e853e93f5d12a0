"""Find models and tasks by name, both built-in ones and those of other packages.

Built-in ones are files in `trainables/models` and `trainables/tasks`. Other packages provide modules with the
same contents, either through the entry points `haltsweep.models` and `haltsweep.tasks` or by the dotted name
of the module. The `name` in the settings of such a module is always the name that the spec uses for it,
independent of the `name` in its `Config`.
"""

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import util
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

from trainables.custom.extensions import BadName, Catalogue, Needs
from trainables.custom.source_files import source_files

if TYPE_CHECKING:
    from pathlib import Path

    from trainables.settings import Settings

Kind = Literal["models", "tasks"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@cache
def _files(kind: Kind) -> tuple[str, ...]:
    spec = util.find_spec(f"trainables.{kind}")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    modules = pkgutil.iter_modules(list(spec.submodule_search_locations))
    return tuple(sorted(entry.name for entry in modules if not entry.name.startswith("_")))


def _requirements(kind: Kind) -> Needs:
    """Return the required attributes of a module of another package."""
    from trainables.settings import ModelSettings, Settings

    def require_subclass(base: type) -> tuple[Callable[[Any], bool], str]:
        return lambda value: isinstance(value, type) and issubclass(value, base), (
            f"a class derived from trainables.settings.{base.__name__}"
        )

    if kind == "models":
        encoder = (lambda value: isinstance(value, type), "a class that is built as Encoder(config)")
        return {"Config": require_subclass(ModelSettings), "Encoder": encoder}
    functions = {
        "shape": "shape(config)",
        "splits": "splits(config)",
        "build": "build(config, split)",
        "decode": "decode(tokens)",
    }
    return {
        "Config": require_subclass(Settings),
        "VERSION": (lambda value: type(value) is int, "a whole number"),
        **{name: (callable, f"a function {description}") for name, description in functions.items()},
    }


CATALOGUES: Mapping[Kind, Catalogue] = {
    kind: Catalogue(
        kind.removesuffix("s"),
        f"haltsweep.{kind}",
        f"trainables.{kind}",
        partial(_files, kind),
        partial(_requirements, kind),
    )
    for kind in KINDS
}


def names(kind: Kind) -> tuple[str, ...]:
    """Return the sorted names of all entries without importing any of them."""
    return CATALOGUES[kind].names()


def is_named(kind: Kind, name: str) -> bool:
    """Return whether `name` is valid: a listed name or the name of a module."""
    return CATALOGUES[kind].is_named(name)


def origin(kind: Kind, name: str) -> str:
    """Return the origin of the listed `name`: `haltsweep`, or name and version of a distribution."""
    return CATALOGUES[kind].origin(name)


def load(kind: Kind, name: str) -> ModuleType:
    """Return the module that defines `name`. Raises `UnknownName`, or `BadModule` for an unusable module."""
    return CATALOGUES[kind].load(name)


def is_custom(kind: Kind, name: str) -> bool:
    """Return whether `name` is not built-in."""
    return name not in _files(kind)


def usable(kind: Kind) -> Iterator[tuple[str, ModuleType]]:
    """Yield each listed name with its module; skip modules of other packages that cannot be used."""
    for name in names(kind):
        try:
            yield name, load(kind, name)
        except BadName:
            continue


def config_class(kind: Kind, name: str) -> "type[Settings]":
    """Return the settings class of `name`; its field `name` admits only this value. Raises as `load`."""
    module = load(kind, name)
    config: type[Settings] = module.Config
    return (
        config if name in _files(kind) and "name" in config.model_fields else _with_fixed_name(config, name)
    )


def custom_sources(kind: Kind, name: str) -> "list[Path]":
    """Return the source files of `name`; empty if it is built-in. Raises the errors of `load`."""
    module = load(kind, name)
    return [] if name in _files(kind) else source_files(module.__name__)


@cache
def _with_fixed_name(config: "type[Settings]", name: str) -> "type[Settings]":
    """Return a subclass of `config` whose field `name` allows only the value `name`."""
    from pydantic import Field, create_model

    field: Any = (Literal[name], Field(default=name, description="The name."))
    with_name = create_model(config.__name__, __base__=config, __module__=config.__module__, name=field)
    with_name.__doc__ = config.__doc__
    return with_name
