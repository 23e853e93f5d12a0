"""Implement `haltsweep data`; no slow imports at module level, since the help must appear at once."""

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.display.building import Bars
from orchestrator.cli.display.console import complain, emit_json, out, say
from orchestrator.cli.locations import data_root
from orchestrator.cli.options import Data, Json, Profile
from orchestrator.errors import InputError, StoreError

if TYPE_CHECKING:
    from orchestrator.cli.subjects import Subject
    from trainables.data.split import Split

app = typer.Typer(help="Build, show and verify data sets.", no_args_is_help=True)

What = Annotated[
    str, typer.Argument(help="A task (`haltsweep tasks` lists them) or a spec file.", metavar="TASK|SPEC")
]
Changes = Annotated[
    list[str] | None,
    typer.Argument(
        help="Settings of the task, e.g. trees=1000, or overrides of the spec.", metavar="KEY=VALUE"
    ),
]
Splits = Annotated[
    list[str] | None, typer.Option("--split", help="Only this split; may be given again.", metavar="NAME")
]


@app.command()
def build(
    what: What, changes: Changes = None, profile: Profile = None, split: Splits = None, data: Data = None
) -> None:
    """Build the data of a task, or all that a spec needs, unless they are there."""
    from orchestrator.cli.subjects import subjects

    root = data_root(data)
    chosen = subjects(what, changes or (), profile, split or ())
    _refuse_streamed(chosen, split or ())
    with Bars() as bars:
        for subject in chosen:
            for info in subject.splits:
                if not info.streamed:
                    _build(subject, info.name, root, bars)


def _refuse_streamed(chosen: "list[Subject]", asked: list[str] | tuple[str, ...]) -> None:
    for subject in chosen:
        for info in subject.splits:
            if info.streamed and info.name in asked:
                raise InputError(
                    f"the split {info.name} of {subject.name} is drawn anew for every batch, so it cannot be "
                    "built; `haltsweep data show` shows a batch of it"
                )


def _build(subject: "Subject", split: str, root: Path, bars: Bars) -> None:
    """Build one split and print a line about it."""
    from trainables.data.store import open_sealed, split_path

    path = _path(subject, split, root)
    there, _ = open_sealed(path)
    begin = time.monotonic()
    data = _opened(subject, split, root, bars)
    how = f"built in {time.monotonic() - begin:.1f} s" if there is None else "already there"
    size = split_path(subject.config, split, root).stat().st_size
    say(f"{subject.name}/{split}: {how}: {len(data):,} examples, {size:,} bytes, {data.content_hash}, {path}")


def _path(subject: "Subject", split: str, root: Path) -> Path:
    """Return the path of a split. Raise `InputError` if its source files are missing."""
    from trainables.data.store import split_path

    try:
        return split_path(subject.config, split, root)
    except ValueError as error:
        raise InputError(f"the split {split} of {subject.name} cannot be made: {error}") from error


def _opened(subject: "Subject", split: str, root: Path, bars: Bars) -> "Split":
    """Return a split, building it first if it is missing. Raise `InputError` or `StoreError`."""
    from orchestrator.execution.datasets import open_or_build_split
    from trainables.data.store import DataError

    with bars.part(f"{subject.name}/{split}"):
        try:
            return open_or_build_split(subject.config, split, root)
        except DataError as error:
            raise StoreError(str(error)) from error


@app.command()
def show(
    what: What,
    changes: Changes = None,
    profile: Profile = None,
    split: Splits = None,
    examples: Annotated[int, typer.Option(min=0, help="Examples of each split.")] = 2,
    figure: Annotated[
        Path | None, typer.Option(help="Write histograms of lengths and labels here.", metavar="FILE.png")
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show examples with their answers, lengths, labels, floors and padding; builds what is not there."""
    from orchestrator.cli.display.data_views import Shown, as_plain, render, shown
    from orchestrator.cli.subjects import subjects

    root = data_root(data)
    _check_figure(figure)
    found: list[Shown] = []
    with Bars() as bars:
        for subject in subjects(what, changes or (), profile, split or ()):
            for info in subject.splits:
                stored = None if info.streamed else _opened(subject, info.name, root, bars)
                found.append(shown(subject, info, stored, examples))
    if as_json:
        emit_json([as_plain(each) for each in found])
    else:
        for part in render(found):
            out().print(part)
    if figure is not None:
        from orchestrator.cli.display.data_figure import draw

        draw(found, figure)
        complain(f"figure: {figure}")


def _check_figure(figure: Path | None) -> None:
    if figure is not None and not (figure.suffix == ".png" and figure.absolute().parent.is_dir()):
        raise InputError(
            f"--figure must be a .png file in a folder that is there, got {figure}; choose another"
        )


@app.command()
def verify(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of all datasets; else $HALTSWEEP_DATA, else ./data.", metavar="DIR"),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete what is damaged, unsealed or stale.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read all data again and compare them with their seals; exit code 1 if something is damaged."""
    from orchestrator.cli.display.data_views import found_as_plain, line_of
    from trainables.data.inventory import REMOVABLE, inspect

    root = data_root(folder)
    if not root.is_dir():
        raise InputError(
            f"the datasets must be in a folder, and {root} is not there; build some or name another"
        )
    with Bars() as bars, bars.part(str(root)):
        found = list(inspect(root))
    removed, kept = [], []
    for each in found if remove else ():
        if each.verdict in REMOVABLE:
            try:
                each.remove()
                removed.append(each)
            except OSError as error:
                kept.append(f"{each.path} could not be deleted: {error.strerror or error}")
    if as_json:
        emit_json([found_as_plain(each, removed=each in removed) for each in found])
    else:
        for each in found:
            say(line_of(each, removed=each in removed))
        counts = Counter(each.verdict for each in found)
        say(f"{root}: " + (", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())) or "no data"))
    for line in kept:
        complain(line)
    if kept or any(each.verdict == "damaged" for each in found if each not in removed):
        raise typer.Exit(1)
