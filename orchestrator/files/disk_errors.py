"""Explain errors of the file system and state what the user can do about them."""

import errno
import os
import tempfile
from pathlib import Path

PROBE_BYTES = 65_536
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors for a full disk, an exceeded quota and a file of maximum size."""
_REMEDIES = {
    errno.EROFS: "the file system is mounted read-only: mount it for writing, or check it (`dmesg`)",
    errno.EACCES: "make it readable and writable for this user",
    errno.EPERM: "make it readable and writable for this user",
    errno.EIO: "the disk fails: check it (`dmesg`)",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENAMETOOLONG: "give a shorter path",
}
FULL = "the disk is full: free some space, or have your quota raised"


def disk_remedy(error: OSError) -> str:
    """Return what the user can do about a file system error."""
    if error.errno in _FULL:
        return FULL
    return _REMEDIES.get(error.errno or 0, "fix the cause")


def probe_folder(folder: Path) -> OSError | None:
    """Return the error of a test write to `folder`, None if it succeeds; no file remains."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(PROBE_BYTES))
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None
