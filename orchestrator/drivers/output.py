"""What a trial prints, kept per attempt beside its checkpoints, and bounded: the beginning and the end.

    logs/<trial id>/attempt-1.raw   while the attempt runs, as printed; a killed worker leaves it
    logs/<trial id>/attempt-1.log   afterwards: secrets masked, control characters as text

Written straight to the file, so that what was printed survives the death of the process. Both are readable
by their owner alone. Where nothing was printed there is no file. A disk that refuses costs the log, not the
trial.
"""

import contextlib
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from orchestrator.abandoned import own_file
from orchestrator.redact import redact
from orchestrator.regular_files import other_kind
from search_spaces.wording import printable
from trainables.atomic import PRIVATE, clear_unfinished, write_atomically

HEAD_BYTES = 64 << 10
TAIL_BYTES = 192 << 10
RAW_BYTES = HEAD_BYTES + 2 * TAIL_BYTES
"""Beyond it the middle of a raw log is dropped."""
LOOK_S = 0.5
"""Between two looks whether a worker's raw log has grown too large."""
RAW = ".raw"
_GAP = re.compile(rb"\n\.\.\. ([\d,]+) bytes left out \.\.\.\n")
MOST_OF_GAP = 64
"""Bytes of the line that says how much is left out."""
_log = logging.getLogger(__name__)


class TrialOutput(Protocol):
    """Where the output of one trial after the other goes."""

    def begin(self, file: Path | None) -> None:
        """The output of an attempt belongs into `file` from now on; None: nowhere."""

    def listening(self) -> contextlib.AbstractContextManager[None]:
        """To be open while code of the trial runs."""

    def failed(self, error: BaseException) -> None:
        """Keep the whole traceback."""

    def end(self) -> None:
        """The attempt is over."""


class NoOutput:
    """Keeps nothing."""

    def begin(self, file: Path | None) -> None:
        """As of TrialOutput."""

    def listening(self) -> contextlib.AbstractContextManager[None]:
        """As of TrialOutput."""
        return contextlib.nullcontext()

    def failed(self, error: BaseException) -> None:
        """As of TrialOutput."""

    def end(self) -> None:
        """As of TrialOutput."""


class ProcessOutput(NoOutput):
    """All that this process writes to its standard output and error, libraries in C and children included.

    For a worker, whose process runs nothing but trials.
    """

    def __init__(self) -> None:
        self._file: _RawFile | None = None
        self._before: tuple[int, int] | None = None
        threading.Thread(target=self._watch, name="haltsweep-output", daemon=True).start()

    def begin(self, file: Path | None) -> None:
        """As of TrialOutput."""
        self.end()
        self._file = _opened(file)
        if self._file is not None:
            _flush()
            self._before = os.dup(1), os.dup(2)
            os.dup2(self._file.descriptor, 1)
            os.dup2(self._file.descriptor, 2)

    def failed(self, error: BaseException) -> None:
        """As of TrialOutput."""
        if self._file is not None:
            _flush()
            self._file.write(_traceback(error))

    def end(self) -> None:
        """As of TrialOutput."""
        file, self._file = self._file, None
        if file is None:
            return
        assert self._before is not None, "what was begun has put the streams aside"
        _flush()
        for number, kept in zip((1, 2), self._before, strict=True):
            os.dup2(kept, number)
            os.close(kept)
        self._before = None
        file.close()

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            if (file := self._file) is not None:
                file.bound()


class PythonOutput(NoOutput):
    """What Python code of the trial prints in this process, besides where it goes anyway.

    For a driver in the launching process, whose own view must not end up in the log.
    """

    def __init__(self) -> None:
        self._file: _RawFile | None = None
        self._others: frozenset[threading.Thread] = frozenset()

    def begin(self, file: Path | None) -> None:
        """As of TrialOutput."""
        self.end()
        self._file = _opened(file)
        # Threads that the trial starts belong to it.
        self._others = frozenset(threading.enumerate()) - {threading.current_thread()}

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """As of TrialOutput."""
        file = self._file
        if file is None:
            yield
            return
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (_Tee(stream, self._heard) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before

    def failed(self, error: BaseException) -> None:
        """As of TrialOutput."""
        if self._file is not None:
            self._file.write(_traceback(error))

    def end(self) -> None:
        """As of TrialOutput."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _heard(self, text: str) -> None:
        if self._file is not None and threading.current_thread() not in self._others:
            self._file.write(text)
            self._file.bound()


class ThreadOutput(PythonOutput):
    """The same of a trial that has a thread of its own, inside `heard_apart`."""

    def __init__(self) -> None:
        super().__init__()
        self._thread: threading.Thread | None = None

    def begin(self, file: Path | None) -> None:
        """As of TrialOutput; in the thread of the trial."""
        super().begin(file)
        self._thread = threading.current_thread()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """As of TrialOutput."""
        yield

    def hear(self, text: str) -> None:
        """Keep what the trial prints."""
        if threading.current_thread() is self._thread:
            self._heard(text)


@contextlib.contextmanager
def heard_apart(outputs: Sequence[ThreadOutput]) -> Iterator[None]:
    """Inside, what is printed is heard by that of `outputs` whose trial has the present thread."""

    def hear(text: str) -> None:
        for each in outputs:
            each.hear(text)

    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Tee(stream, hear) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def read(file: Path) -> str | None:
    """What `file`, or what a killed worker left of it, says; None if there is nothing. Raises OSError."""
    for path in (file, file.with_suffix(RAW)):
        if own_file(path):
            with path.open("rb") as stream:
                return as_text(stream.read(RAW_BYTES + HEAD_BYTES))
    return None


def seal_abandoned(folder: Path) -> None:
    """Finish the logs of one trial that killed workers left; a worker may not be running it."""
    for path in folder.glob(f"*{RAW}"):
        if own_file(path):
            _seal(path)


def as_text(content: bytes) -> str:
    """Bytes that were printed, as text that can be shown anywhere, without its middle if it is long."""
    if len(content) > HEAD_BYTES + TAIL_BYTES:
        left_out = len(content) - HEAD_BYTES - TAIL_BYTES
        content = content[:HEAD_BYTES] + _gap(left_out, content[HEAD_BYTES:]) + content[-TAIL_BYTES:]
    lines = redact(content.decode("utf-8", "backslashreplace")).split("\n")
    return "\n".join(printable(line.rstrip("\r").expandtabs()) for line in lines)


class _RawFile:
    """An open raw log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self.descriptor = os.open(path, flags, PRIVATE)
        self._lock = threading.Lock()
        if kind := other_kind(os.fstat(self.descriptor).st_mode):
            os.close(self.descriptor)
            raise FileExistsError(f"{path} must be a file, and is {kind}")

    def write(self, text: str) -> None:
        """At once, in one piece if it is short."""
        with contextlib.suppress(OSError):
            os.write(self.descriptor, text.encode("utf-8", "backslashreplace"))

    def bound(self) -> None:
        """Drop the middle if it has become too long. What is printed meanwhile may be lost with it."""
        with contextlib.suppress(OSError), self._lock:
            if self.descriptor < 0:
                return
            size = os.fstat(self.descriptor).st_size
            if size <= RAW_BYTES:
                return
            tail = os.pread(self.descriptor, TAIL_BYTES, size - TAIL_BYTES)
            # Not through our own descriptor, which always writes at the end: before it is cut, all is there.
            other = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                begin = os.pread(self.descriptor, MOST_OF_GAP, HEAD_BYTES)
                kept = _gap(size - HEAD_BYTES - TAIL_BYTES, begin) + tail
                os.pwrite(other, kept, HEAD_BYTES)
                os.ftruncate(other, HEAD_BYTES + len(kept))
            finally:
                os.close(other)

    def close(self) -> None:
        """The attempt is over: finish the log."""
        with self._lock:
            os.close(self.descriptor)
            self.descriptor = -1
        _seal(self._path)


class _Tee:
    """A stream that tells what is written to it."""

    def __init__(self, stream: Any, heard: Any) -> None:
        self._stream = stream
        self._heard = heard

    def write(self, text: str) -> int:
        """To the stream, and to who listens."""
        self._heard(text)
        written: int = self._stream.write(text)
        return written

    def writelines(self, lines: Any) -> None:
        """As `write`, one after the other."""
        for line in lines:
            self.write(line)

    def close(self) -> None:
        """The stream is not the trial's to close: whoever runs it goes on speaking there."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _opened(file: Path | None) -> _RawFile | None:
    """Where the sweep's folder is not to be seen, as on machines that share nothing, there is no log."""
    if file is None or not file.parent.parent.parent.is_dir():
        return None
    try:
        seal_abandoned(file.parent)  # which takes a folder away that is empty then
        file.parent.mkdir(parents=True, exist_ok=True)
        return _RawFile(file.with_suffix(RAW))
    except OSError as error:
        _log.warning("no log of the trial in %s: %s", file, error)
        return None


def _seal(raw: Path) -> None:
    """Turn a raw log into one that can be shown; an empty one leaves nothing."""
    with contextlib.suppress(OSError):
        content = raw.read_bytes()
        if content:
            clear_unfinished(raw.with_suffix(".log"))  # of a process killed right here; it left `raw`, too
            write_atomically(raw.with_suffix(".log"), as_text(content), mode=PRIVATE)
        raw.unlink()
        if not content:
            raw.parent.rmdir()  # unless an earlier attempt has printed something


def _gap(left_out: int, begin: bytes) -> bytes:
    """What stands for bytes that are left out and `begin` so, with those that an earlier gap stood for."""
    if earlier := _GAP.match(begin):
        left_out += int(earlier[1].replace(b",", b"")) - len(earlier[0])
    return f"\n... {left_out:,} bytes left out ...\n".encode()


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
