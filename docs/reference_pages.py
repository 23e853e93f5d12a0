"""Generate the reference pages from the code: the command line, the spec schema, errors and report.json."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

from orchestrator import errors
from orchestrator.cli.main import app
from orchestrator.report.results import types as report_types
from orchestrator.report.writers import json_file
from orchestrator.spec.schema import json_schema
from orchestrator.trials import OutcomeKind

BUILT_IN = "built-in"
"""Form of a spec in the schema. The form for custom training code has the same sections but `baseline`."""
MOST_NAMES = 12
"""Maximum number of allowed names that a table lists; `haltsweep schema` has all."""
SYSTEM = ("model.", "task.")
"""Definitions of the settings of single models and tasks, which `haltsweep models` and `tasks` show."""

NAMES = {
    "object": "mapping",
    "string": "text",
    "boolean": "true or false",
    "array": "list",
    "number": "number",
    "integer": "whole number",
    "null": "null",
}
"""Types of JSON Schema in words."""


def write_pages(folder: Path) -> None:
    """Write one Markdown file per generated part into `folder`; keep a file whose text is the same."""
    folder.mkdir(exist_ok=True)
    for name, part in PARTS.items():
        file, text = folder / f"{name}.md", part()
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, encoding="utf-8")


def commands() -> str:
    """Return the help of every command."""
    command = typer.main.get_command(app)
    context = command.make_context("haltsweep", ["--help-all"], resilient_parsing=True)
    text = get_docs_for_click(obj=command, ctx=context, name="haltsweep")
    # The page has the title; its first section lists the commands with their help cut off.
    sections = text.partition("\n## ")[2]
    return f"## {sections}".replace("```console", "```text")


def spec() -> str:
    """Return one table of keys per section of a spec."""
    schema = json_schema()
    definitions: Mapping[str, Any] = schema["$defs"]
    lines: list[str] = ["## The whole spec", ""]
    lines += _table(definitions[BUILT_IN], schema["properties"])
    for name, definition in definitions.items():
        form, _, section = name.partition(".")
        is_shown = form == BUILT_IN and section and not section.startswith(SYSTEM)
        if is_shown and definition.get("properties"):
            lines += [f"## `{section}`", "", definition.get("description", "").strip(), ""]
            lines += _table(definition, {})
    return "\n".join(lines)


def _table(definition: Mapping[str, Any], described: Mapping[str, Any]) -> list[str]:
    required = definition.get("required", ())
    rows = []
    for key, value in definition["properties"].items():
        default = "required" if key in required else _default(value)
        kind = ", ".join(filter(None, (_type(value), default)))
        meaning = _cell(value) or _cell(described.get(key, {}))
        rows.append(f"| `{key}` | {kind} | {meaning} |")
    return ["| key | value | meaning |", "|---|---|---|", *rows, ""]


def _cell(value: Mapping[str, Any]) -> str:
    return " ".join(value.get("description", "").split()).replace("|", "\\|")


def _default(value: Mapping[str, Any]) -> str:
    default = value.get("default")
    if default in (None, [], {}):
        return ""
    return f"default `{str(default).lower() if isinstance(default, bool) else default}`"


def _type(value: Mapping[str, Any]) -> str:
    """Return the type of a value in words; a section is named by its own heading."""
    options = [each for each in value.get("anyOf") or value.get("oneOf") or () if each.get("type") != "null"]
    if options:
        return " or ".join(dict.fromkeys(map(_type, options)))
    if "$ref" in value:
        name = str(value["$ref"]).rpartition("/")[2].partition(".")[2]
        return f"section `{name}`" if name[:1].isupper() else "mapping"
    names = [f"`{each}`" for each in value.get("enum", [value["const"]] if "const" in value else [])]
    if names:
        return ", ".join(names) if len(names) <= MOST_NAMES else "name"
    if value.get("type") == "array" and isinstance(value.get("items"), Mapping):
        return f"list of {_type(value['items'])}"
    kinds = value.get("type", "any")
    return " or ".join(
        NAMES.get(each, "any value") for each in ([kinds] if isinstance(kinds, str) else kinds)
    )


def exit_codes() -> str:
    """Return tables of error classes, codes of faults in a spec, and outcomes of a trial."""
    classes = [
        f"| `{each.__name__}` | `{each.code}` | {each.exit_code} | {_first_line(each)} |"
        for each in (errors.HaltsweepError, *_subclasses(errors.HaltsweepError))
    ]
    faults = [f"| `{each}` | {each.sentence} |" for each in errors.FaultCode]
    outcomes = [f"| `{each}` | {each.sentence} |" for each in OutcomeKind]
    tables = {
        "Error classes": (
            "| class in `orchestrator.errors` | `code` | exit code | meaning |\n|---|---|---|---|",
            classes,
        ),
        "Codes of faults in a spec": ("| `code` | meaning |\n|---|---|", faults),
        "Outcomes of a trial": ("| outcome | meaning |\n|---|---|", outcomes),
    }
    return (
        "\n\n".join("\n".join([f"## {title}", "", header, *rows]) for title, (header, rows) in tables.items())
        + "\n"
    )


def _subclasses(of: type[errors.HaltsweepError]) -> Iterator[type[errors.HaltsweepError]]:
    for each in of.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from _subclasses(each)


def _first_line(of: type) -> str:
    return " ".join((inspect.getdoc(of) or "").partition("\n\n")[0].split())


def report_json() -> str:
    """Return the keys of report.json: those of its root, then those of `page`."""
    described = attribute_docstrings(report_types.Report)
    rows = [f"| `{name}` | {text} |" for name, text in described.items()]
    own = inspect.getdoc(json_file) or ""
    return "\n".join(
        ["## Keys of the root", "", "| key | meaning |", "|---|---|", *rows, "", "## Details", "", own, ""]
    )


def attribute_docstrings(of: type) -> dict[str, str]:
    """Return the fields of a dataclass with the text below each, or that of the class of its values."""
    (body,) = ast.parse(inspect.getsource(of)).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for each, following in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
            continue
        text = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = str(following.value.value)
        found[each.target.id] = " ".join((text or _of_values(of, each.annotation)).split()).replace(
            "|", "\\|"
        )
    return found


def _of_values(of: type, annotation: ast.expr) -> str:
    """Return the docstring's first part of the dataclass in an annotation, such as `Effect`."""
    names = [each.id for each in ast.walk(annotation) if isinstance(each, ast.Name)]
    classes = [getattr(sys.modules[of.__module__], name, None) for name in names]
    return next((_first_line(each) for each in classes if is_dataclass(each)), "")


PARTS = {"commands": commands, "spec": spec, "errors": exit_codes, "report-json": report_json}
"""File name without suffix, and the function that returns the text."""
