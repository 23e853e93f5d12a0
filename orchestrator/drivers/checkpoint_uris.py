"""URIs of places for checkpoints: what they may hold, what is below them, which file system they mean."""

import uuid
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from orchestrator.errors import InputError, StoreError
from orchestrator.redact import redact, redact_url

USERS_ARE_KEYS = ("s3", "gs", "gcs")


def sweep_uri(uri: str, name: str) -> str:
    """A place of its own for one launch of a sweep: checkpoints of an earlier one are never gone on from."""
    return below(uri, f"{name}-{uuid.uuid4().hex[:8]}")


def below(uri: str, *names: str) -> str:
    """`names` below the folder of a URI, which may have a query."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path="/".join([parts.path.rstrip("/"), *names])))


def check_uri(uri: str) -> None:
    """Raises InputError for a URI that holds a secret or that no file system is known for; asks nobody."""
    if "://" not in uri:  # a path, or no URI at all
        file_system(uri)
    try:
        secret = _holds_secret(uri)
    except ValueError as error:
        raise _unknown(uri, error) from error
    if secret:
        raise InputError(
            "--checkpoints must hold no credentials, for it is written down, got "
            f"{redact_url(uri)}; set them in the environment of all nodes (e.g. AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY)"
        )
    file_system(uri)


def file_system(uri: str) -> tuple[Any, str]:
    """A pyarrow file system and the path in it. Raises InputError."""
    import pyarrow as pa
    from pyarrow import fs

    try:
        system, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as unknown:
        if "://" not in uri:
            raise _unknown(uri, unknown) from unknown
        import fsspec

        try:
            found, path = fsspec.core.url_to_fs(uri)
        except (ValueError, ImportError) as error:
            raise _unknown(uri, error) from error
        return fs.PyFileSystem(fs.FSSpecHandler(found)), path.rstrip("/")
    except OSError as error:
        raise StoreError(
            f"--checkpoints must be reachable, got {redact_url(uri)}: {redact(error)}"
        ) from error
    return system, path.rstrip("/")


def _holds_secret(uri: str) -> bool:
    parts = urlsplit(uri)
    if parts.password is None and parts.scheme not in USERS_ARE_KEYS:
        uri = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return redact_url(uri) != uri


def _unknown(uri: str, error: Exception) -> InputError:
    return InputError(
        "--checkpoints must be a URI of a known file system, e.g. s3://bucket/folder, got "
        f"{redact_url(uri)!r}: {redact(error)}; fsspec needs the library of that scheme, e.g. adlfs for abfs://"
    )
