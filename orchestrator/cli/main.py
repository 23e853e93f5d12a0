"""Start `haltsweep`; importing this module loads no torch, Ray, MLflow or Optuna, so that help is fast."""

import errno
import faulthandler
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from orchestrator.cli.commands import (
    best,
    bundle,
    catalogue,
    check,
    compare,
    data,
    doctor,
    extend,
    launch,
    listing,
    logs,
    new,
    records,
    remove,
    status,
    stop,
    track,
    ui,
    verify,
)
from orchestrator.cli.ctrl_c import handle_ctrl_c, was_interrupted
from orchestrator.cli.display.console import print_error, print_line
from orchestrator.errors import HaltsweepError, InputError
from orchestrator.files.disk_errors import disk_remedy
from orchestrator.files.redact import redact, redacted_stderr
from orchestrator.garbage import collect_rarely
from search_spaces.wording import escape_unprintable

USAGE_ERROR: type[Exception] = next(
    error_class for error_class in typer.BadParameter.__mro__ if error_class.__name__ == "ClickException"
)
"""Base class of Typer's errors for a command line, which Typer does not export."""


class _UnhandledInterrupt(HaltsweepError):
    """Raised for a Ctrl-C that no command handled, since Typer would exit without a message."""

    exit_code = 130


class _Commands(TyperGroup):
    """Group of all commands, which converts KeyboardInterrupt to `_UnhandledInterrupt`."""

    def invoke(self, ctx: Any) -> Any:
        """Run the selected command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _UnhandledInterrupt("interrupted") from None


app = typer.Typer(
    name="haltsweep",
    cls=_Commands,
    help="Hyperparameter search and ablation studies for any PyTorch (or Python) training code, "
    "with verdicts that hold. "
    "Recurrent Transformers with dynamic halt, their tasks and their search spaces are built in.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed or unfinished, 2 bad input, 130 interrupted.",
)


def _print_version(show_version: bool) -> None:
    if show_version:
        from importlib import metadata

        print_line(f"haltsweep {metadata.version('haltsweep')}")
        raise typer.Exit


@app.callback()
def _accept_global_options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Accept the options that belong to no command."""


PLANNING_PANEL = "Before a sweep"
RUNNING_PANEL = "Running a sweep"
RESULTS_PANEL = "Reading a sweep"
CATALOGUE_PANEL = "Built-in models, tasks and search spaces"

app.command(rich_help_panel=PLANNING_PANEL)(new.new)
app.command(rich_help_panel=PLANNING_PANEL)(check.check)
app.command(rich_help_panel=PLANNING_PANEL)(check.plan)
app.command(rich_help_panel=PLANNING_PANEL)(check.schema)
app.command(rich_help_panel=PLANNING_PANEL)(doctor.doctor)
app.command(rich_help_panel=RUNNING_PANEL)(launch.launch)
app.command(rich_help_panel=RUNNING_PANEL)(launch.resume)
app.command(rich_help_panel=RUNNING_PANEL)(extend.extend)
app.command(rich_help_panel=RUNNING_PANEL)(status.status)
app.command("list", rich_help_panel=RUNNING_PANEL)(listing.list_sweeps)
app.command(rich_help_panel=RUNNING_PANEL)(stop.stop)
app.command(rich_help_panel=RESULTS_PANEL)(logs.logs)
app.command(rich_help_panel=RESULTS_PANEL)(track.report)
app.command(rich_help_panel=RESULTS_PANEL)(best.best)
app.command(rich_help_panel=RESULTS_PANEL)(compare.compare)
app.command(rich_help_panel=RESULTS_PANEL)(records.records)
app.command(rich_help_panel=RESULTS_PANEL)(track.sync)
app.command(rich_help_panel=RESULTS_PANEL)(bundle.bundle)
app.command(rich_help_panel=RESULTS_PANEL)(verify.verify)
app.command(rich_help_panel=RESULTS_PANEL)(ui.ui)
app.command(rich_help_panel=RESULTS_PANEL)(remove.remove)
app.command(rich_help_panel=CATALOGUE_PANEL)(catalogue.models)
app.command(rich_help_panel=CATALOGUE_PANEL)(catalogue.tasks)
app.command(rich_help_panel=CATALOGUE_PANEL)(catalogue.training)
app.command(rich_help_panel=CATALOGUE_PANEL)(catalogue.spaces)
app.add_typer(data.app, name="data", rich_help_panel=CATALOGUE_PANEL)


@cache
def command() -> TyperGroup:
    """Return all commands with their options, cached because building them is slow."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup), "there is more than one command"
    return group


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit. Errors of haltsweep become one message instead of a traceback."""
    is_main = arguments is None  # this process runs only the command
    if is_main:
        handle_ctrl_c()
        os.umask(os.umask(0o077) | 0o002)  # never create files that all users can write
        _open_streams()
        faulthandler.enable()  # print the Python line if native code crashes the process
        collect_rarely()
    with redacted_stderr():
        _run_command(arguments)


def _open_streams() -> None:
    """Open standard input, output and errors on /dev/null if the caller closed them, as daemons do.

    Otherwise the next opened file would get the number of a closed stream and receive its output.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:  # `os.open` returns the lowest free number, which is this one
            os.open(os.devnull, os.O_RDWR)
        setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open until exit


def _run_command(arguments: Sequence[str] | None) -> None:
    try:
        _require_working_directory()
        code = _exit_code(arguments)
    except USAGE_ERROR as error:
        _print_usage_error(error)
    except typer.Abort:
        print_error("aborted")
        sys.exit(1)
    except HaltsweepError as error:
        print_error(str(error))
        sys.exit(error.exit_code)
    except OSError as error:
        message = (
            f"the system refused: {error}; {disk_remedy(error)}, and try again; nothing recorded is lost"
        )
        print_error(message)
        sys.exit(InputError.exit_code if error.errno == errno.ENAMETOOLONG else 1)
    except KeyboardInterrupt:
        print_error("interrupted")
        sys.exit(130)
    sys.exit(code)


def _require_working_directory() -> None:
    """Raise `InputError` if the working directory was deleted, since PyTorch would crash there."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise InputError(
            "the working directory of this shell was deleted; change to another one with `cd`"
        ) from error


def _exit_code(arguments: Sequence[str] | None) -> int:
    """Return the exit code of a command; exceptions and `sys.exit` of custom code become `InputError`."""
    try:
        return command()(args=arguments, prog_name="haltsweep", standalone_mode=False) or 0
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if was_interrupted():
            raise _UnhandledInterrupt("interrupted") from None
        from trainables.custom.extensions import custom_code_error

        fault = custom_code_error(error)
        if not fault or isinstance(error, HaltsweepError | OSError | USAGE_ERROR | typer.Abort):
            raise
        raise InputError(fault) from None


def _print_usage_error(error: Any) -> NoReturn:
    """Print Typer's error for a command line without secrets and control characters, then exit."""
    from typer import rich_utils

    error.message = escape_unprintable(redact(error.message))
    rich_utils.rich_format_error(error)
    sys.exit(error.exit_code)


if __name__ == "__main__":
    run()
