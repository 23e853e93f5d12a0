"""How Ray is set up before it starts: quiet, private, and no store of anything. Loads no Ray."""

import os
import secrets
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.files.redact import redact_arguments

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # One process a CPU that Ray starts beforehand: a trial runs in its own, and these would load for nothing.
    "RAY_prestart_worker_first_driver": "0",
    # Ray prints the deaths of workers on our standard output; the ledger has them.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    # Everything that Tune would store or print: the ledger is the truth, and has its own view.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # The newer output prints failures, however silent it is asked to be.
    "RAY_AIR_NEW_OUTPUT": "0",
    # Workers of all free slots may start side by side; how many is our searcher's business.
    "TUNE_MAX_PENDING_TRIALS_PG": "100000",
}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Ray's setting for a Ray of one machine: all its servers listen on the loopback address, on any system."""


@contextmanager
def ray_environment(*, private: bool) -> Iterator[None]:
    """The settings while it is open; enter it before Ray is imported, for Ray reads some of them then.

    `private`: no other machine may connect. Nobody may without this process's token, unless the environment
    says otherwise. Else a token that is kept where Ray looks for it is used: a cluster without tokens does
    not mind.
    """
    wanted = SETTINGS | LOOPBACK if private else dict(SETTINGS)
    if private and "RAY_AUTH_MODE" not in os.environ and (token := _token()):
        wanted |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    elif not private and "RAY_AUTH_MODE" not in os.environ and token_place() is not None:
        wanted |= {"RAY_AUTH_MODE": "token"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def token_place() -> str | None:
    """Where Ray finds the token of a cluster, first come first served; None if there is none."""
    if os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return "RAY_AUTH_TOKEN"
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(path) if path else Path.home() / ".ray" / "auth_token"
    try:
        return str(file) if file.read_text(encoding="utf-8").strip() else None
    except (OSError, UnicodeError):
        return None


@cache
def _token() -> str | None:
    """One a process, for Ray reads it once and keeps it; None if Ray was imported, and has read, before."""
    return None if "ray" in sys.modules else secrets.token_hex(32)


@contextmanager
def redacted_entrypoint() -> Iterator[None]:
    """Inside, Ray takes a command line without passwords for that of this process.

    Its head node shows every program that connects to everybody who may ask it.
    """
    from ray._private import utils

    ours: Any = utils
    before = getattr(ours, "get_entrypoint_name", None)
    if before is None:  # a Ray that does not ask
        yield
        return
    ours.get_entrypoint_name = lambda: shlex.join(redact_arguments(sys.argv))
    try:
        yield
    finally:
        ours.get_entrypoint_name = before


@contextmanager
def without_spare_servers() -> Iterator[None]:
    """Inside, a Ray that starts has no monitor of logs, no autoscaler and no web server.

    Nobody asks those of a Ray of our own for anything: workers' output is kept by `output`, its size is
    fixed, and about two seconds of processor time go into starting them. A Ray that has no such methods
    starts as it will.
    """
    from ray._private.node import Node

    ours: Any = Node
    names = ("start_log_monitor", "start_monitor", "start_api_server")
    before = {name: getattr(ours, name) for name in names if hasattr(ours, name)}
    for name in before:
        setattr(ours, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(ours, name, method)
