"""Implement `haltsweep models`, `tasks`, `training` and `spaces`, which list names and settings for specs."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.display.console import emit_json, out, print_line
from orchestrator.cli.options import Json
from orchestrator.errors import InputError

if TYPE_CHECKING:
    from search_spaces.dimensions import Space
    from trainables.catalog import Kind
    from trainables.task_protocol import SplitInfo
    from trainables.types import HeadKind

UNBOUNDED_LENGTH = 10**6
"""Limit on lengths in tokens, above which an upper bound is not displayed."""

Name = Annotated[
    str | None, typer.Argument(help="Name of an entry to show in detail; by default all are listed.")
]


def models(name: Name = None, as_json: Json = False) -> None:
    """List the models, or show the settings of one."""
    _print_catalog("models", name, as_json)


def tasks(name: Name = None, as_json: Json = False) -> None:
    """List the tasks, or show the settings, splits and metrics of one."""
    _print_catalog("tasks", name, as_json)


def training(as_json: Json = False) -> None:
    """Show the settings of training: the fields of `baseline.train`."""
    from orchestrator.cli.display.fields import field_rows
    from trainables.training.config import TrainConfig

    if as_json:
        emit_json(TrainConfig.model_json_schema())
    else:
        _print_table(("field", "type", "default", "meaning"), field_rows(TrainConfig))


def _print_catalog(kind: "Kind", name: str | None, as_json: bool) -> None:
    from trainables import catalog
    from trainables.custom.extensions import BadName

    try:
        if as_json:
            names = [name] if name else catalog.names(kind)
            emit_json({entry: catalog.config_class(kind, entry).model_json_schema() for entry in names})
        elif name:
            _print_settings(kind, name)
        else:
            describe, origin = partial(_module_summary, kind), partial(catalog.origin, kind)
            _print_list(catalog.names(kind), describe, origin)
    except BadName as error:
        raise InputError(str(error)) from error


def _module_summary(kind: "Kind", name: str) -> str:
    from trainables import catalog

    return _first_line(catalog.load(kind, name).__doc__)


def _entry_summary(name: str, describe: Callable[[str], str], origin: str) -> str:
    """Return a one-line summary of an entry, with its source or import error if it is custom."""
    from trainables.custom.extensions import BUILT_IN_ORIGIN, BadName

    try:
        description = describe(name)
    except BadName as error:
        return f"cannot be used: {error}"
    return description if origin == BUILT_IN_ORIGIN else f"{description} [from {origin}]".strip()


def _print_settings(kind: "Kind", name: str) -> None:
    from orchestrator.cli.display.fields import field_rows
    from trainables import catalog
    from trainables.custom.extensions import display_path

    module, config = catalog.load(kind, name), catalog.config_class(kind, name)
    print_line(f"{name}: {_first_line(module.__doc__)}\n")
    if source_lines := catalog.custom_sources(kind, name):
        print_line(f"from {display_path(module.__file__ or source_lines[0])}\n")
    _print_table(("field", "type", "default", "meaning"), field_rows(config))
    if kind == "tasks":
        _print_splits(name, module, config)


def _print_splits(name: str, module: Any, config: Any) -> None:
    from pydantic import ValidationError

    print_line("\nsplits, by default:")
    try:
        default = config()
    except ValidationError:
        print_line("none: it has settings without defaults")
        return
    _print_table(("split", "role", "tokens", "examples"), map(_split_row, module.splits(default)))
    try:
        heads = [module.shape(default).head]
    except ValueError:  # the vocabulary is in files that are not there yet
        heads = []
    _print_metrics(name, heads)


def _print_metrics(task: str, heads: "Sequence[HeadKind]") -> None:
    """Print the metrics that have an explanation; other metrics are parts or attributes of these.

    Without a head, print the metrics of all of them.
    """
    from trainables.training.metric_catalog import declared_metrics

    metrics = declared_metrics([task], heads) if heads else declared_metrics([task])
    print_line("\nmetrics, e.g. valid/accuracy; training metrics exist only for the split train:")
    direction_words = {"max": "higher", "min": "lower", None: ""}
    rows = (
        (f"{metric.split}/{metric.name}".lstrip("/"), direction_words[metric.better], metric.meaning)
        for metric in metrics
        if metric.meaning
    )
    _print_table(("metric", "better", "meaning"), rows)


def _split_row(split: "SplitInfo") -> tuple[str, ...]:
    unknown_count = "new examples for every batch" if split.streamed else "the remaining examples"
    examples = unknown_count if split.examples is None else str(split.examples)
    is_bounded = split.length_max <= UNBOUNDED_LENGTH
    tokens = f"{split.length_min} to {split.length_max}" if is_bounded else f"{split.length_min} or more"
    return split.name, split.role, tokens, examples


def spaces(name: Name = None, as_json: Json = False) -> None:
    """List the ready-made search spaces, or show the dimensions of one."""
    from orchestrator.files.json_values import to_json_values
    from orchestrator.search import space_catalog
    from trainables.custom.extensions import BadName

    try:
        if as_json:
            full_names = [name] if name else space_catalog.names_with_variants()
            emit_json({entry: to_json_values(space_catalog.load(entry)) for entry in full_names})
        elif name:
            print_line(f"{name}: {space_catalog.describe(name)}\n")
            _print_dimensions(space_catalog.load(name))
        else:
            names = {*space_catalog.names_with_variants(), *space_catalog.space_names()}
            _print_list(sorted(names), space_catalog.describe, space_catalog.origin)
    except BadName as error:
        raise InputError(str(error)) from error


def _print_dimensions(space: "Space") -> None:
    from orchestrator.plan.display.format import condition_words, domain_words

    rows = (
        (entry.path, domain_words(entry.domain), condition_words(entry) or "always", entry.source)
        for entry in space.dimensions
    )
    _print_table(("field", "range", "exists when", "source"), rows)
    for constraint in space.constraints:
        print_line(f"only with {constraint}")


def _first_line(docstring: str | None) -> str:
    return (docstring or "").strip().partition("\n")[0]


def _print_list(names: Collection[str], describe: Callable[[str], str], origin: Callable[[str], str]) -> None:
    width = max(map(len, names), default=0)
    lines = [f"{name:<{width}}  {_entry_summary(name, describe, origin(name))}" for name in names]
    for line in lines:  # only now, since custom code may print while its summary is read
        print_line(line)


def _print_table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(*headers)
    for row in rows:
        table.add_row(*map(Text, row))
    out().print(table)
