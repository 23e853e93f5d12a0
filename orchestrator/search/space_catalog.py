"""Look up search spaces of `search_spaces` and of other packages.

Other packages provide modules with the same contents, by the entry point `haltsweep.spaces` or by dotted
name. `grid` and `my_package.grid` name the space that the module calls `published`. `grid.wide` and
`my_package.grid.wide` name another space of the same module.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Final

from search_spaces import catalog as ours
from search_spaces.catalog import DEFAULT_VARIANT, variants
from search_spaces.dimensions import Space
from search_spaces.wording import hint
from trainables.custom.extensions import BadName, Catalogue, Needs, UnknownName, is_module_name

_REQUIRED_NAMES: Final[Needs] = {
    DEFAULT_VARIANT: (lambda value: isinstance(value, Space), "a search_spaces.dimensions.Space"),
}
_CATALOGUE: Final = Catalogue(
    "search space", "haltsweep.spaces", "search_spaces", ours.names, lambda: _REQUIRED_NAMES
)


def space_names() -> tuple[str, ...]:
    """Return the sorted names of all listed spaces, without variants."""
    return _CATALOGUE.names()


def names_with_variants() -> tuple[str, ...]:
    """Return the names of all listed spaces with their variants, except unusable spaces of other packages."""
    full_names_found = []
    for name in space_names():
        try:
            full_names_found += list(_full_names(name, variants(_CATALOGUE.load(name))))
        except BadName:
            continue
    return tuple(full_names_found)


def load(full_name: str) -> Space:
    """Return the space called `full_name`.

    Raises:
        BadName: If there is no such space.
    """
    return _find_space(full_name)[1]


def describe(full_name: str) -> str:
    """Return the first line of the space's module, followed by the variant.

    Raises:
        BadName: If there is no such space.
    """
    module, space = _find_space(full_name)
    names_by_id = {id(space): name for name, space in variants(module).items()}
    variant = names_by_id.get(id(space), DEFAULT_VARIANT)
    variant_text = "" if variant == DEFAULT_VARIANT else f" ({variant}: not the published ranges)"
    return (module.__doc__ or "").strip().partition("\n")[0] + variant_text


def origin(full_name: str) -> str:
    """Return the origin of a listed space: `haltsweep`, or name and version of a distribution."""
    return _CATALOGUE.origin(full_name.partition(".")[0])


def _find_space(full_name: str) -> tuple[ModuleType, Space]:
    """Return the module and the space called `full_name`."""
    name = full_name.partition(".")[0]
    if name in space_names():
        module = _CATALOGUE.load(name)
        if full_name in (spaces_by_name := _full_names(name, variants(module))):
            return module, spaces_by_name[full_name]
    try:
        return _load_foreign(full_name)
    except UnknownName:
        if name not in space_names() and is_module_name(full_name):
            raise
    raise UnknownName(f"no search space named {full_name!r}. {hint(full_name, names_with_variants())}")


def _load_foreign(full_name: str) -> tuple[ModuleType, Space]:
    """Return a module of another package with its published space, or with the named variant."""
    if not is_module_name(full_name):
        raise UnknownName
    try:
        module = _CATALOGUE.load(full_name)
        return module, variants(module)[DEFAULT_VARIANT]
    except UnknownName:
        name, _, variant = full_name.rpartition(".")
        if not is_module_name(name):
            raise
        module = _CATALOGUE.load(name)
        if variant not in variants(module) or variant == DEFAULT_VARIANT:
            raise
        return module, variants(module)[variant]


def _full_names(name: str, spaces: Mapping[str, Space]) -> dict[str, Space]:
    """Return the spaces of the module `name` by their names in a spec."""
    variant_names = [variant for variant in sorted(spaces) if variant != DEFAULT_VARIANT]
    return {name: spaces[DEFAULT_VARIANT], **{f"{name}.{other}": spaces[other] for other in variant_names}}
