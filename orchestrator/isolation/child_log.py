"""Write logs of the output of trials: one per attempt, of limited size, next to the checkpoints.

    logs/<trial id>/attempt-1.raw   output while the attempt runs; it remains if the worker is killed
    logs/<trial id>/attempt-1.log   readable log after the attempt: secrets masked, control characters escaped

The process writes directly to the raw log, so that output survives a crash. Only the owner can read the two
files. An attempt without output has no log. If a log cannot be written, the trial runs without it.
"""

import contextlib
import logging
import os
import re
from pathlib import Path

from orchestrator.files.abandoned_folders import is_own_file
from orchestrator.files.redact import redact
from orchestrator.files.regular_files import non_file_kind
from search_spaces.wording import escape_to_line
from trainables.atomic import PRIVATE, clear_unfinished, write_atomically

HEAD_BYTES = 64 << 10
TAIL_BYTES = 192 << 10
RAW_BYTES = HEAD_BYTES + 2 * TAIL_BYTES
"""Maximum size of a raw log; the middle of a longer one is dropped."""
RAW = ".raw"
_GAP = re.compile(rb"\n\.\.\. ([\d,]+) bytes left out \.\.\.\n")
GAP_LENGTH_MAX = 64
"""Maximum length of the line that states the number of dropped bytes."""
_log = logging.getLogger(__name__)


class ChildLog:
    """Raw log of a child while it runs."""

    def __init__(self, file: Path | None) -> None:
        """Open the raw log of `file`. Without a file, or if it cannot be created, output is discarded."""
        self._path = Path() if file is None else file.with_suffix(RAW)
        self.descriptor: int | None = None
        """Descriptor for output of the trial; None if output is discarded."""
        if file is None or not file.parent.parent.parent.is_dir():  # this machine lacks the sweep's folder
            return
        try:
            seal_abandoned(file.parent)  # may remove the folder
            file.parent.mkdir(parents=True, exist_ok=True)
            self.descriptor = _open_raw(self._path)
        except OSError as error:
            _log.warning("the trial runs without its log %s: %s", file, error)

    def drop_middle(self) -> None:
        """Drop the middle if the log is too long. Output written at the same time may be lost."""
        if self.descriptor is None:
            return
        with contextlib.suppress(OSError):
            size = os.fstat(self.descriptor).st_size
            if size <= RAW_BYTES:
                return
            tail = os.pread(self.descriptor, TAIL_BYTES, size - TAIL_BYTES)
            # The first descriptor can only append, so a second one overwrites the middle.
            log_descriptor = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                begin = os.pread(self.descriptor, GAP_LENGTH_MAX, HEAD_BYTES)
                kept_content = _gap(size - HEAD_BYTES - TAIL_BYTES, begin) + tail
                os.pwrite(log_descriptor, kept_content, HEAD_BYTES)
                os.ftruncate(log_descriptor, HEAD_BYTES + len(kept_content))
            finally:
                os.close(log_descriptor)

    def close(self) -> None:
        """Convert the raw log to a readable log, after the process has ended."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
            _seal(self._path)


def read_log(file: Path) -> str | None:
    """Return the log in `file`, or its raw log if a worker was killed; None if neither exists.

    Raises:
        OSError: The log is not readable.
    """
    for path in (file, file.with_suffix(RAW)):
        if is_own_file(path):
            with path.open("rb") as stream:
                return readable_text(stream.read(RAW_BYTES + HEAD_BYTES))
    return None


def seal_abandoned(folder: Path) -> None:
    """Convert raw logs of killed workers to readable logs. The trial must not be running."""
    for path in folder.glob(f"*{RAW}"):
        if is_own_file(path):
            _seal(path)


def readable_text(content: bytes) -> str:
    """Return output as printable text, without the middle if it is too long."""
    if len(content) > HEAD_BYTES + TAIL_BYTES:
        left_out = len(content) - HEAD_BYTES - TAIL_BYTES
        content = content[:HEAD_BYTES] + _gap(left_out, content[HEAD_BYTES:]) + content[-TAIL_BYTES:]
    lines = redact(content.decode("utf-8", "backslashreplace")).split("\n")
    return "\n".join(escape_to_line(line.rstrip("\r").expandtabs()) for line in lines)


def _open_raw(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, PRIVATE)
    if kind := non_file_kind(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(f"{path} must be a file, and is {kind}")
    return descriptor


def _seal(raw: Path) -> None:
    """Convert a raw log to a readable log; delete an empty one."""
    with contextlib.suppress(OSError):
        content = raw.read_bytes()
        if content:
            clear_unfinished(raw.with_suffix(".log"))  # file of a process that was killed at this point
            write_atomically(raw.with_suffix(".log"), readable_text(content), mode=PRIVATE)
        raw.unlink()
        if not content:
            raw.parent.rmdir()  # fails if logs of earlier attempts exist


def _gap(left_out: int, begin: bytes) -> bytes:
    """Return the line that replaces dropped bytes; its count includes that of an earlier line in `begin`."""
    if earlier_gap := _GAP.match(begin):
        left_out += int(earlier_gap[1].replace(b",", b"")) - len(earlier_gap[0])
    return f"\n... {left_out:,} bytes left out ...\n".encode()
