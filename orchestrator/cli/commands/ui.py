"""Implement `haltsweep ui`, which opens the MLflow UI at a sweep on this machine."""

import html
import os
import signal
import sqlite3
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated
from urllib.parse import urlsplit

import typer

from orchestrator.cli.display.console import print_line
from orchestrator.cli.locations import find_sweep, runs_root, tracking_uri
from orchestrator.cli.options import Runs, Tracking
from orchestrator.errors import InputError
from orchestrator.files.known_addresses import require_known
from orchestrator.files.sqlite_files import sqlite_file
from orchestrator.identity import SweepFolder

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
REMOTE_SCHEMES = ("http", "https")

Name = Annotated[
    str | None,
    typer.Argument(help="Name or folder of the sweep to open; by default all sweeps.", metavar="NAME"),
]
Port = Annotated[
    int | None,
    typer.Option(
        help="Port to listen on; by default 5000, or a free port if 5000 is taken.", min=1, max=65535
    ),
]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")]


def ui(
    name: Name = None,
    runs: Runs = None,
    tracking: Tracking = None,
    port: Port = None,
    browser: Browser = True,
) -> None:
    """Show a sweep in the MLflow UI on this machine until Ctrl-C.

    Only the printed addresses give access, since they contain a token. If runs are tracked on an MLflow
    server (http://...), the command opens the server's page.
    """
    root = runs_root(runs)
    folder = find_sweep(name, root) if name is not None else None
    uri = _store_uri(folder, root, tracking)
    _check_uri(uri)
    if urlsplit(uri).scheme in REMOTE_SCHEMES:
        page = _print_addresses(uri, folder)
        if browser and _can_browse():
            webbrowser.open(page)
        return
    from orchestrator.tracking.mlflow.moved_store import follow_move
    from orchestrator.tracking.mlflow.server import serve_store

    artifacts = (folder.root.resolve().parent if folder else root) / "mlartifacts"
    with suppress(sqlite3.Error):  # a read-only store is displayed unchanged
        follow_move(uri, artifacts)
    with exit_on_signals(), serve_store(uri, artifacts, port) as server:
        page = _print_addresses(server.url, folder)
        with _redirect_file(page, artifacts.parent) if browser and _can_browse() else nullcontext() as file:
            if file is not None:
                webbrowser.open(file.as_uri())
            print_line("Ctrl-C ends it")
            server.wait()


def _store_uri(folder: SweepFolder | None, root: Path, tracking: str | None) -> str:
    """Return `--tracking`, or the URI of the sweep's launch, or the default of this machine."""
    from orchestrator.errors import StoreError
    from orchestrator.execution.sweep.launch_folder import read_setup

    if tracking is None and folder is not None:
        try:
            launched_uri = read_setup(folder).tracking_uri
        except StoreError:  # launched without the command line
            launched_uri = None
        if launched_uri is not None:
            require_known(launched_uri, "--tracking")
            return launched_uri
        root = folder.root.parent
    return tracking_uri(tracking, root)


def _check_uri(uri: str) -> None:
    """Raise `InputError` for a missing store, since MLflow would create an empty one."""
    from orchestrator.tracking.mlflow.mlflow_runs import check_uri

    check_uri(uri)
    file = sqlite_file(uri)
    if file is not None and not file.is_file():
        raise InputError(
            f"--tracking: there is no MLflow store at {file}. Launch a sweep, or name its store with --runs "
            "or --tracking."
        )


def _print_addresses(server: str, folder: SweepFolder | None) -> str:
    """Print the addresses of one or all sweeps; return the address for the browser."""
    from orchestrator.tracking.mlflow.links import find_links, without_user

    if folder is None:
        page = without_user(server)
        print_line(f"MLflow:   {page}")
        return page
    from orchestrator.plan.serialise import read_plan

    links = find_links(server, read_plan(folder))
    print_line(f"all runs: {links.runs}")
    print_line(f"arms:     {links.arms}")
    print_line(f"compared: {links.comparison}")
    return links.arms


def _can_browse() -> bool:
    """Return whether a graphical browser can open; text browsers cannot display MLflow."""
    has_screen = sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.stdout.isatty() and bool(has_screen)


@contextmanager
def _redirect_file(page: str, folder: Path) -> Iterator[Path | None]:
    """Yield a temporary file that redirects a browser to `page`, or None if it cannot be written.

    Every user can read the arguments of a browser process, so the address with its token must not be an
    argument. The file is in `folder` if that exists, since a sandboxed browser cannot read temporary files.
    """
    with ExitStack() as stack:
        try:
            directory = folder if folder.is_dir() else None
            file = stack.enter_context(
                tempfile.NamedTemporaryFile("w", dir=directory, prefix=".ui-", suffix=".html")
            )
            file.write(f'<meta http-equiv="refresh" content="0; url={html.escape(page)}">')
            file.flush()
        except OSError:
            path = None
        else:
            path = Path(file.name).resolve()
        yield path


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Exit the context quietly on Ctrl-C, SIGTERM or a closed terminal; ignore a second signal."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the shape of a handler
        for signal_number in END_SIGNALS:
            signal.signal(signal_number, signal.SIG_IGN)
        raise KeyboardInterrupt

    old_handlers = {signal_number: signal.signal(signal_number, end) for signal_number in END_SIGNALS}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for signal_number, handler in old_handlers.items():
            signal.signal(signal_number, handler)
