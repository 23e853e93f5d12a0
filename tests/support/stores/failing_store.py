"""A file system whose operations fail while a file `away` lies in its folder."""

from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tests.support.sweeps.workloads import Synthetic

PROTOCOL = "failing"
AWAY = "away"
"""It holds the name of the exception to raise, and how many operations fail; all of them without a number."""


class LibraryError(Exception):
    """What a store's library raises: no OSError."""


class FailingStore(LocalFileSystem):
    """A local folder that goes away and comes back."""

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
    """Raise, if a folder around this path is away."""
    note = next((each / AWAY for each in Path(path).parents if (each / AWAY).is_file()), None)
    if note is None:
        return
    name, *left = note.read_text().split()
    if left == ["0"]:
        return
    if left:
        note.write_text(f"{name} {int(left[0]) - 1}")
    kinds = {"LibraryError": LibraryError, "ConnectionError": ConnectionError, "ValueError": ValueError}
    raise kinds[name]("503 slow down")


fsspec.register_implementation(PROTOCOL, FailingStore, clobber=True)


class StoreUser(Synthetic):
    """A trainable whose import makes the file system known in the processes of trials."""
