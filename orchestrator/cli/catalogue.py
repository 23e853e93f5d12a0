"""`haltsweep models`, `tasks`, `spaces`: what a spec can name, with every field, default and source."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.console import emit_json, out, say
from orchestrator.cli.options import Json
from orchestrator.errors import InputError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from search_spaces.dimensions import Space
    from trainables.catalog import Kind
    from trainables.settings import Settings

Name = Annotated[str | None, typer.Argument(help="Show the fields of this one; without it, list all.")]


def models(name: Name = None, as_json: Json = False) -> None:
    """List the models, or show the settings of one."""
    _show("models", name, as_json)


def tasks(name: Name = None, as_json: Json = False) -> None:
    """List the tasks, or show the settings and splits of one."""
    _show("tasks", name, as_json)


def _show(kind: "Kind", name: str | None, as_json: bool) -> None:
    from trainables import catalog

    try:
        chosen = {entry: catalog.load(kind, entry) for entry in ([name] if name else catalog.names(kind))}
    except catalog.UnknownName as error:
        raise InputError(str(error)) from error
    summaries = {entry: _first_line(module.__doc__) for entry, module in chosen.items()}
    if as_json:
        emit_json({entry: module.Config.model_json_schema() for entry, module in chosen.items()})
    elif name:
        say(f"{name}: {summaries[name]}\n")
        _print_fields(_fields(chosen[name].Config))
    else:
        _print_list(summaries)


def spaces(name: Name = None, as_json: Json = False) -> None:
    """List the ready-made search spaces, or show the dimensions of one."""
    from orchestrator.plan.serialise import plain
    from search_spaces import catalog

    try:
        chosen = {entry: catalog.load(entry) for entry in ([name] if name else catalog.full_names())}
    except catalog.UnknownSpace as error:
        raise InputError(str(error)) from error
    if as_json:
        emit_json({entry: plain(space) for entry, space in chosen.items()})
    elif name:
        say(f"{name}: {catalog.describe(name)}\n")
        _print_dimensions(chosen[name])
    else:
        _print_list({entry: catalog.describe(entry) for entry in chosen})


def _first_line(docstring: str | None) -> str:
    return (docstring or "").strip().partition("\n")[0]


def _print_list(summaries: dict[str, str]) -> None:
    width = max(map(len, summaries), default=0)
    for name, summary in summaries.items():
        say(f"{name:<{width}}  {summary}")


def _fields(config: "type[Settings]", prefix: str = "") -> Iterable[tuple[str, str, str, str]]:
    """(path, type, default, meaning) of every field, nested settings flattened."""
    for name, field in config.model_fields.items():
        yield f"{prefix}{name}", _type_name(field), _default(field), field.description or ""
        for nested in _nested(field):
            yield from _fields(nested, f"{prefix}{name}.")


def _nested(field: "FieldInfo") -> "list[type[Settings]]":
    from typing import get_args

    from trainables.settings import Settings

    candidates: list[Any] = [field.annotation, *get_args(field.annotation)]
    return [kind for kind in candidates if isinstance(kind, type) and issubclass(kind, Settings)]


def _type_name(field: "FieldInfo") -> str:
    annotation = field.annotation
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return text.replace("typing.", "").replace("trainables.", "")


def _default(field: "FieldInfo") -> str:
    from trainables.settings import Settings

    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    return "{...}" if isinstance(value, Settings) else str(value)


def _print_fields(rows: Iterable[tuple[str, str, str, str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("field", "type", "default", "meaning")
    for row in rows:
        table.add_row(*map(Text, row))
    out().print(table)


def _print_dimensions(space: "Space") -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("field", "range", "exists when", "source")
    for each in space.dimensions:
        when = " and ".join(f"{one.path} in {list(one.values)}" for one in each.when)
        table.add_row(*map(Text, (each.path, str(each.domain), when, each.source)))
    out().print(table)
    for constraint in space.constraints:
        say(f"only if {constraint}")
