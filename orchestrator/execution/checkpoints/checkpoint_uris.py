"""Check URIs of checkpoint stores, build paths below them, and open their file systems."""

import re
import uuid
from typing import Any
from urllib.parse import urlsplit

from orchestrator.errors import InputError, StoreError
from orchestrator.files.redact import redact, redact_url

USERS_ARE_KEYS = ("s3", "gs", "gcs")


def sweep_uri(uri: str, name: str) -> str:
    """Return a unique folder below `uri`, so that a sweep does not find checkpoints of earlier launches."""
    return child_uri(uri, f"{name}-{uuid.uuid4().hex[:8]}")


def child_uri(uri: str, *names: str) -> str:
    """Return the URI of `names` below the folder of a URI, which may have a query.

    The text is edited directly, since `urllib` drops the slashes of `scheme:///path` for unknown schemes.
    """
    folder, query = re.fullmatch(r"(.*?://[^?#]*?)/*([?#].*)?", uri, re.DOTALL).groups("")  # type: ignore[union-attr]
    return "/".join([folder, *names]) + query


def check_uri(uri: str) -> None:
    """Check the URI of a store.

    Raises:
        InputError: The URI contains a secret, no installed file system supports its scheme, or other
            processes would find another place there.
        StoreError: The file system connects on creation, and the connection fails.
    """
    got = f"got {redact_url(uri)}"
    scheme, _, path = uri.partition("://")
    if scheme == "memory" or (scheme in ("file", "local") and not path.startswith("/")):
        raise InputError(
            "--checkpoints must name the same place in all processes, e.g. file:///data/checkpoints (with an "
            f"absolute path), {got}"
        )
    try:
        if not (has_secret := _holds_secret(uri)):
            file_system(uri)
    except (ImportError, TypeError, ValueError) as error:
        raise InputError(
            f"--checkpoints must be a URI of a known file system, e.g. s3://bucket/folder, {got}: "
            f"{redact(error)}; fsspec needs the library of that scheme, e.g. adlfs for abfs://"
        ) from error
    except Exception as error:  # libraries of stores have their own exception classes
        raise StoreError(f"--checkpoints must be reachable, {got}: {redact(error)}") from error
    if has_secret:
        raise InputError(
            f"--checkpoints must contain no credentials, because it is stored, {got}; set them in the "
            "environment of all nodes (e.g. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
        )


def file_system(uri: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URI and the path in that file system.

    File systems of pyarrow are preferred, since its S3, Google and Azure file systems need no further
    library.

    Raises:
        ImportError: The library of the scheme is not installed.
        ValueError: No file system supports the scheme.
        Exception: The file system connects on creation, and the connection fails.
    """
    from fsspec.core import url_to_fs
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow import ArrowInvalid, ArrowNotImplementedError, fs

    if "://" not in uri:
        raise ValueError("a URI has a scheme, such as s3://")
    try:
        system, path = fs.FileSystem.from_uri(uri)
        files = ArrowFSWrapper(system, skip_instance_cache=True)
    except (ArrowInvalid, ArrowNotImplementedError):
        files, path = url_to_fs(uri)
    return files, path.rstrip("/")


def _holds_secret(uri: str) -> bool:
    parts = urlsplit(uri)
    if parts.password is None and parts.scheme not in USERS_ARE_KEYS:
        uri = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return redact_url(uri) != uri
