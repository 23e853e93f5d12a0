"""Implement `haltsweep new`, which writes a first spec into the current directory."""

from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer

import orchestrator
from orchestrator.cli.display.console import print_line
from orchestrator.cli.script_spec import write_spec_for_script
from orchestrator.errors import InputError
from search_spaces.wording import hint

PACKAGE_FOLDER = Path(orchestrator.__file__).parent
EXAMPLES_FOLDER = PACKAGE_FOLDER.parent / "experiments"
"""Folder of built-in specs, next to the packages in a checkout and in an installed wheel."""
CUSTOM = "own"
CUSTOM_FILES = ("digits.yaml", "digits.py.txt")
"""A spec for custom training code, and that code; `.txt` prevents its import as a module."""
DEFAULT_EXAMPLE = "quickstart"
BLOCK_MARKS = (">", "|")
"""First characters of a YAML text whose lines follow below."""


def new(
    example: Annotated[
        str, typer.Argument(help=f"Name of a built-in spec, or `{CUSTOM}` for your own training code.")
    ] = DEFAULT_EXAMPLE,
    only_list: Annotated[
        bool, typer.Option("--list", help="List the built-in specs; write nothing.")
    ] = False,
    script: Annotated[
        Path | None,
        typer.Option("--from", help="Write a spec for an argparse script, with its flags as settings."),
    ] = None,
) -> None:
    """Write an example spec to the current directory."""
    if script is not None:
        _write({Path(f"{script.stem}.yaml"): write_spec_for_script(script)})
        return
    spec_by_name = {path.stem: path for path in sorted(EXAMPLES_FOLDER.glob("*.yaml"))}
    if only_list:
        print_line(f"{CUSTOM:32} your own training code: a spec and a function that trains")
        for name, path in spec_by_name.items():
            print_line(f"{name:32} {_question(path)}")
        return
    if example == CUSTOM:
        sources = [PACKAGE_FOLDER / "starters" / name for name in CUSTOM_FILES]
    elif example in spec_by_name:
        sources = [spec_by_name[example]]
    else:
        raise InputError(f"no example named {example!r}. {hint(example, [*spec_by_name, CUSTOM])}")
    files = {Path(source.name.removesuffix(".txt")): source.read_text("utf-8") for source in sources}
    _write(files)


def _write(files: Mapping[Path, str]) -> None:
    if existing := [str(file) for file in files if file.exists()]:
        raise InputError(
            f"{' and '.join(existing)} {'exist' if len(existing) > 1 else 'exists'}, and no file is "
            f"overwritten. Rename {'them' if len(existing) > 1 else 'it'}, or change to another directory."
        )
    for file, text in files.items():
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
        print_line(f"wrote {file}")
    print_line(f"show its plan: haltsweep plan {next(iter(files))}")


def _question(spec: Path) -> str:
    """Return the question of a spec without parsing the YAML file."""
    lines = iter(spec.read_text("utf-8").splitlines())
    for line in lines:
        if line.startswith("question:"):
            question = line.partition(":")[2].strip()
            block_lines = takewhile(lambda line: line.startswith(" ") or not line.strip(), lines)
            return " ".join(" ".join(block_lines).split()) if question[:1] in BLOCK_MARKS else question
    return ""
