"""Standard error without passwords: what logging, warnings, tracebacks and other libraries write there."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from orchestrator.redact import redact


class RedactedStream:
    """A text stream that masks the passwords of URLs in all that is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As of any text stream; libraries write whole lines."""
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """As of any text stream."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def redacted_stderr() -> Iterator[None]:
    """Inside, everything that Python code writes to standard error is redacted, whoever writes it."""
    before = sys.stderr
    sys.stderr = cast("TextIO", RedactedStream(before))
    try:
        yield
    finally:
        sys.stderr = before
