"""Implement `haltsweep data`; no slow imports at module level, since the help must appear at once."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.display.console import emit_json, out, print_error, print_line
from orchestrator.cli.display.data_progress import ProgressBars
from orchestrator.cli.locations import data_root
from orchestrator.cli.options import Data, Json, Profile
from orchestrator.errors import InputError, StoreError

if TYPE_CHECKING:
    from orchestrator.cli.task_data import TaskData
    from trainables.data.inventory import DataFile
    from trainables.data.split import Split
    from trainables.task_protocol import SplitInfo

app = typer.Typer(help="Build, show and verify datasets.", no_args_is_help=True)

TaskOrSpec = Annotated[
    str, typer.Argument(help="A task (`haltsweep tasks` lists them) or a spec file.", metavar="TASK|SPEC")
]
Changes = Annotated[
    list[str] | None,
    typer.Argument(
        help="Settings of the task, e.g. trees=1000, or overrides of the spec.", metavar="KEY=VALUE"
    ),
]
Splits = Annotated[
    list[str] | None,
    typer.Option("--split", help="Only this split; repeat the option for several splits.", metavar="NAME"),
]


@app.command()
def build(
    task_or_spec: TaskOrSpec,
    changes: Changes = None,
    profile: Profile = None,
    split: Splits = None,
    data: Data = None,
) -> None:
    """Build the data of a task or of a spec; splits that exist are not built again."""
    from orchestrator.cli.task_data import resolve_data

    root = data_root(data)
    tasks = resolve_data(task_or_spec, changes or (), profile, split or ())
    _refuse_streamed(tasks, split or ())
    with ProgressBars() as bars:
        for subject, info in _subject_splits(tasks):
            if not info.streamed:
                _build(subject, info.name, root, bars)


def _subject_splits(tasks: "list[TaskData]") -> "list[tuple[TaskData, SplitInfo]]":
    return [(subject, info) for subject in tasks for info in subject.splits]


def _refuse_streamed(tasks: "list[TaskData]", names: Sequence[str]) -> None:
    for subject, info in _subject_splits(tasks):
        if info.streamed and info.name in names:
            raise InputError(
                f"--split {info.name}: {subject.name} draws new examples for every batch, so nothing "
                "can be built. `haltsweep data show` shows a batch."
            )


def _build(subject: "TaskData", split: str, root: Path, bars: ProgressBars) -> None:
    """Build one split and print a line about it."""
    from trainables.data.store import open_sealed, split_path

    path = _path(subject, split, root)
    sealed, _ = open_sealed(path)
    begin = time.monotonic()
    data_of_split = _open_split(subject, split, root, bars)
    state = f"built in {time.monotonic() - begin:.1f} s" if sealed is None else "exists"
    size = split_path(subject.config, split, root).stat().st_size
    content = f"{len(data_of_split):,} examples, {size:,} bytes, {data_of_split.content_hash}"
    print_line(f"{subject.name}/{split}: {state}: {content}, {path}")


def _path(subject: "TaskData", split: str, root: Path) -> Path:
    """Return the path of a split. Raise `InputError` if its source files are missing."""
    from trainables.data.store import split_path

    try:
        return split_path(subject.config, split, root)
    except ValueError as error:
        raise InputError(f"the split {split} of {subject.name} cannot be built: {error}") from error


def _open_split(subject: "TaskData", split: str, root: Path, bars: ProgressBars) -> "Split":
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
    task_or_spec: TaskOrSpec,
    changes: Changes = None,
    profile: Profile = None,
    split: Splits = None,
    examples: Annotated[int, typer.Option(min=0, help="Number of examples of each split.")] = 2,
    figure: Annotated[
        Path | None,
        typer.Option(help="Write histograms of lengths and labels to this file.", metavar="FILE.png"),
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show examples with answers, lengths, labels, floors and padding; missing data are built."""
    from orchestrator.cli.display.data_views import SplitView, make_split_view, render_views, view_to_json
    from orchestrator.cli.task_data import resolve_data

    root = data_root(data)
    _check_figure(figure)
    views: list[SplitView] = []
    with ProgressBars() as bars:
        for subject, info in _subject_splits(resolve_data(task_or_spec, changes or (), profile, split or ())):
            dataset = None if info.streamed else _open_split(subject, info.name, root, bars)
            views.append(make_split_view(subject, info, dataset, examples))
    if as_json:
        emit_json([view_to_json(view) for view in views])
    else:
        for part in render_views(views):
            out().print(part)
    if figure is not None:
        from orchestrator.cli.display.data_figure import draw_figure

        draw_figure(views, figure)
        print_error(f"figure: {figure}")


def _check_figure(figure: Path | None) -> None:
    if figure is not None and not (figure.suffix == ".png" and figure.absolute().parent.is_dir()):
        raise InputError(
            f"--figure must be a .png file in an existing folder, got {figure}. Choose another file."
        )


@app.command()
def verify(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of all datasets. Default: $HALTSWEEP_DATA, else ./data.", metavar="DIR"),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete files that are damaged, unsealed or stale.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check all datasets for damaged files; the exit code is 1 if a file is damaged."""
    from orchestrator.cli.display.data_views import file_line, file_to_json
    from trainables.data.inventory import REMOVABLE, inspect

    root = data_root(folder)
    if not root.is_dir():
        raise InputError(
            f"DIR: the folder of datasets {root} does not exist. Build data first, or name another folder."
        )
    with ProgressBars() as bars, bars.part(str(root)):
        files = list(inspect(root))
    removed, failures = _delete([file for file in files if remove and file.verdict in REMOVABLE])
    if as_json:
        emit_json([file_to_json(file, removed=file in removed) for file in files])
    else:
        for file in files:
            print_line(file_line(file, removed=file in removed))
        counts = sorted(Counter(file.verdict for file in files).items())
        print_line(f"{root}: {', '.join(f'{n} {kind}' for kind, n in counts) or 'no data'}")
    for line in failures:
        print_error(line)
    if failures or any(file.verdict == "damaged" for file in files if file not in removed):
        raise typer.Exit(1)


def _delete(files: "Sequence[DataFile]") -> "tuple[list[DataFile], list[str]]":
    """Delete files; return the deleted ones, and messages about the others."""
    removed, failures = [], []
    for file in files:
        try:
            file.remove()
            removed.append(file)
        except OSError as error:
            failures.append(f"{file.path} could not be deleted: {error.strerror or error}")
    return removed, failures
