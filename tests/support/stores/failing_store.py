"""A file system whose operations fail while a file named `away` exists in its folder."""

from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

PROTOCOL = "failing"
AWAY = "away"
"""Name of a file with the name of an exception, and the number of failing operations, if limited."""


class LibraryError(Exception):
    """Error of a store's library that is no OSError."""


class FailingStore(LocalFileSystem):
    """A local folder that can be unavailable for some time."""

    protocol = PROTOCOL
    cachable = False

    @classmethod
    def _strip_protocol(cls, path):
        return path.removeprefix(f"{PROTOCOL}://")

    def ls(self, path, detail=False, **kwargs):
        fail(path)
        return super().ls(path, detail=detail, **kwargs)

    def info(self, path, **kwargs):
        fail(path)
        return super().info(path, **kwargs)

    def makedirs(self, path, exist_ok=False):
        fail(path)
        super().makedirs(path, exist_ok=exist_ok)

    def rm(self, path, recursive=False, maxdepth=None):
        fail(path)
        super().rm(path, recursive=recursive, maxdepth=maxdepth)

    def rm_file(self, path):
        fail(path)
        super().rm_file(path)

    def _open(self, path, mode="rb", block_size=None, **kwargs):
        fail(path)
        return super()._open(path, mode, block_size, **kwargs)


def fail(path):
    """Raise the error that a file `away` in a parent folder of `path` names, if such a file exists."""
    error_file = next((parent / AWAY for parent in Path(path).parents if (parent / AWAY).is_file()), None)
    if error_file is None:
        return
    name, *num_failures = error_file.read_text().split()
    if num_failures == ["0"]:
        return
    if num_failures:
        error_file.write_text(f"{name} {int(num_failures[0]) - 1}")
    kinds = {"LibraryError": LibraryError, "ConnectionError": ConnectionError, "ValueError": ValueError}
    raise kinds[name]("503 slow down")


fsspec.register_implementation(PROTOCOL, FailingStore, clobber=True)
