"""What to do about a disk that refuses: in the words of the refusal, whoever met it."""

import errno
import os
import tempfile
from pathlib import Path

PROBE_BYTES = 65_536
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, no quota, no more bytes in a file."""
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


def remedy(error: OSError) -> str:
    """What to do about it."""
    if error.errno in _FULL:
        return FULL
    return _REMEDIES.get(error.errno or 0, "put that right")


def is_full(error: OSError) -> bool:
    """Whether it says that there is no more room."""
    return error.errno in _FULL


def refusal(folder: Path) -> OSError | None:
    """Why nothing can be written to `folder` at this moment; None if something can. Leaves nothing there."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(PROBE_BYTES))
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None
