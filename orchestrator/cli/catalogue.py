"""`haltsweep models`, `tasks`, `spaces`: what a spec can name, with every field, default and source."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.console import emit_json, out, say
from orchestrator.cli.options import Json
from orchestrator.errors import InputError

if TYPE_CHECKING:
    from search_spaces.dimensions import Space
    from trainables.catalog import Kind
    from trainables.task_protocol import SplitInfo

LONG = 10**6
"""A bound on tokens beyond this says nothing."""

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
    if as_json:
        emit_json({entry: module.Config.model_json_schema() for entry, module in chosen.items()})
    elif name:
        _print_settings(name, chosen[name], with_splits=kind == "tasks")
    else:
        _print_list({entry: _first_line(module.__doc__) for entry, module in chosen.items()})


def _print_settings(name: str, module: Any, *, with_splits: bool) -> None:
    from orchestrator.cli.fields import rows

    say(f"{name}: {_first_line(module.__doc__)}\n")
    _print_table(("field", "type", "default", "meaning"), rows(module.Config))
    if with_splits:
        say("\nsplits, by default:")
        _print_table(("split", "role", "tokens", "examples"), map(_split_row, module.splits(module.Config())))


def _split_row(split: "SplitInfo") -> tuple[str, ...]:
    uncounted = "drawn anew for every batch" if split.streamed else "what is left"
    examples = uncounted if split.examples is None else str(split.examples)
    bounded = split.length_max <= LONG
    tokens = f"{split.length_min} to {split.length_max}" if bounded else f"{split.length_min} or more"
    return split.name, split.role, tokens, examples


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


def _print_dimensions(space: "Space") -> None:
    from orchestrator.plan.words import condition_words, domain_words

    _print_table(
        ("field", "range", "exists when", "source"),
        (
            (each.path, domain_words(each.domain), condition_words(each) or "always", each.source)
            for each in space.dimensions
        ),
    )
    for constraint in space.constraints:
        say(f"only with {constraint}")


def _first_line(docstring: str | None) -> str:
    return (docstring or "").strip().partition("\n")[0]


def _print_list(summaries: dict[str, str]) -> None:
    width = max(map(len, summaries), default=0)
    for name, summary in summaries.items():
        say(f"{name:<{width}}  {summary}")


def _print_table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(*headers)
    for row in rows:
        table.add_row(*map(Text, row))
    out().print(table)
