"""What a report says of the arms, for MLflow, and how the background writer gets it. Light."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import IO

END = b"\n"
"""JSON has none inside."""


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """What a report says of the arms, for their runs in MLflow."""

    metrics: Mapping[str, Mapping[str, float]]
    """By arm and name, in the order in which they are written."""
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By arm and name."""


class SummaryFile:
    """Hands a summary to another process, which may be started anew: a file without a name that both hold.

    Not through the pipe: who does not read would keep the writer waiting.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - until `close`
        self.fd = self._file.fileno()
        """For the other process: `read_summary(fd)`."""

    def write(self, summary: ArmSummary) -> None:
        """Once, and before the other process is asked to look."""
        self._file.write(json.dumps(asdict(summary)).encode() + END)
        self._file.flush()

    def close(self) -> None:
        """Let go of it."""
        self._file.close()


def read_summary(fd: int) -> ArmSummary | None:
    """What was written into the file; None for nothing, or for half of it by a process that was killed."""
    text = os.pread(fd, os.fstat(fd).st_size, 0)
    return ArmSummary(**json.loads(text)) if text.endswith(END) else None
