"""Record the addresses of servers that this user has named; only these receive the user's credentials.

The files of a sweep name an MLflow server and a database. The files, and the servers, may belong to another
person.
"""

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.files.redact import redact_url

TRACKING = "MLFLOW_TRACKING_URI"
_OF_MLFLOW = (
    "$MLFLOW_TRACKING_TOKEN",
    "$MLFLOW_TRACKING_USERNAME",
    "$MLFLOW_TRACKING_PASSWORD",
    "$MLFLOW_TRACKING_AUTH",
    "$MLFLOW_TRACKING_AWS_SIGV4",
    "$MLFLOW_TRACKING_CLIENT_CERT_PATH",
    "~/.mlflow/credentials",
)
_OF_DATABASES = ("$PGPASSWORD", "$PGPASSFILE", "$PGSERVICE", "$MYSQL_PWD", "~/.pgpass", "~/.my.cnf")
"""Sources of credentials that client libraries send to any server: variables and files in the home folder."""
_MLFLOW_SCHEMES = ("http", "https", "mlflow-artifacts")
_DATABASE_SCHEMES = ("postgresql", "postgres", "mysql", "mssql")
_named: set[str] = set()
"""Digests of the addresses that were named in this process."""


def record_addresses(*addresses: str | None) -> None:
    """Record that the user has named the addresses, so that later commands may log in there."""
    for address in addresses:
        if address is None or not _scheme(address) or (digest := _digest(address)) in _recorded_names():
            continue
        _named.add(digest)
        file = _file()
        # If the file cannot be written, later commands ask for the address again.
        with suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "w") as stream:
                stream.write(f"{digest}\n")


def require_known(address: str | None, option: str) -> None:
    """Raise InputError for an address from a sweep's files that the user has not named.

    Only addresses of servers that would receive credentials are checked.

    Args:
        address: URL of an MLflow or a database; None and local files are accepted.
        option: Command-line option that names such an address, for the message.

    Raises:
        InputError: The user has credentials for servers of this kind, and has not named this one.
    """
    if address is None or not (credentials := _credentials(address)):
        return
    is_in_environment = address.rstrip("/") == os.environ.get(TRACKING, "").rstrip("/")
    if is_in_environment or _digest(address) in _recorded_names():
        return
    raise InputError(
        f"only the files of the sweep name the server {redact_url(address)}; credentials are sent only to "
        f"servers that you have named. If you trust this server with {credentials}, run "
        f"`haltsweep doctor {option} URL` once with its URL; otherwise unset {credentials}"
    )


def _credentials(address: str) -> str:
    """Return which of the user's credentials the server at `address` would receive; empty for none."""
    scheme = _scheme(address)
    if scheme in _MLFLOW_SCHEMES:
        return " and ".join(filter(_is_there, _OF_MLFLOW))
    has_password = re.match(r"[^/]*//[^/@]*:[^/]+@", address) is not None
    return " and ".join(filter(_is_there, _OF_DATABASES)) if scheme and not has_password else ""


def _is_there(source: str) -> bool:
    return bool(os.environ.get(source[1:])) if source.startswith("$") else _in_home(source).exists()


def _scheme(address: str) -> str:
    """Return the scheme of the URL of a server; empty for all other URLs."""
    # Clients ignore white space in the scheme.
    scheme = re.sub(r"[\x00-\x20]", "", address).partition(":")[0].partition("+")[0].lower()
    return scheme if scheme in (*_MLFLOW_SCHEMES, *_DATABASE_SCHEMES) else ""


def _digest(address: str) -> str:
    # Only a digest is stored, since the URL may contain a password.
    return hashlib.sha256(address.rstrip("/").encode(errors="backslashreplace")).hexdigest()


def _recorded_names() -> set[str]:
    with suppress(OSError):
        return _named | set(_file().read_text(encoding="utf-8").split())
    return _named


def _file() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or _in_home("~/.local/state"), "haltsweep", "addresses")


def _in_home(path: str) -> Path:
    """Return the absolute path of `~/...`, which is below `/` for a user without a home folder."""
    return Path("/", os.path.expanduser(path))  # noqa: PTH111 - `Path.expanduser` raises without a home folder
