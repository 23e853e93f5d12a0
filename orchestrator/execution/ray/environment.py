"""Define environment variables for Ray's driver, without output, dashboards and result files of Ray."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

RAY_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Without this, Ray would start one idle process per CPU; trials run in child processes of actors.
    "RAY_prestart_worker_first_driver": "0",
    # Without this, Ray would print deaths of workers, which the ledger records.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    # Seconds after which a driver exits if it cannot reach the head of its cluster.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
    # Tune stores and prints nothing, since the ledger stores results and the launcher displays them.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Tune's newer output prints failures even with verbose=0.
    "RAY_AIR_NEW_OUTPUT": "0",
    # Actors of all free slots may start at once; the searcher limits the number of trials.
    "TUNE_MAX_PENDING_TRIALS_PG": "100000",
}
LOOPBACK_VARIABLES = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Setting that makes all servers of a private Ray listen on the loopback address only."""


def ray_environment(*, private: bool) -> Mapping[str, str]:
    """Return the variables that must be set before a process imports Ray.

    Args:
        private: Whether the process starts a private Ray. Other machines cannot reach a private Ray, and
            other users of this machine lack its token. For an existing cluster, a token of the user is sent,
            which clusters without tokens ignore.
    """
    environment = RAY_VARIABLES | LOOPBACK_VARIABLES if private else RAY_VARIABLES
    if "RAY_AUTH_MODE" in os.environ:
        return environment
    if private:
        return environment | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    return environment | ({"RAY_AUTH_MODE": "token"} if token_location() is not None else {})


def token_location() -> str | None:
    """Return the variable or file from which Ray reads the token of a cluster; None without a token."""
    if os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return "RAY_AUTH_TOKEN"
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(path) if path else Path.home() / ".ray" / "auth_token"
    try:
        return str(file) if file.read_text(encoding="utf-8").strip() else None
    except (OSError, UnicodeError):
        return None
