"""Pass a report's metrics and tags of the arms to the background writer of MLflow."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import IO

END = b"\n"
"""End of a complete summary. A summary is one line of JSON, so a line feed occurs only at its end."""


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """Metrics and tags from a report for the arms' runs in MLflow."""

    metrics: Mapping[str, Mapping[str, float]]
    """Values by arm and name, in the order of writing."""
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Texts by arm and name."""


class SummaryFile:
    """Unnamed file that passes a summary to another process.

    A pipe would block this process while the other one does not read.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - until `close`
        self.fd = self._file.fileno()
        """Descriptor for `read_summary` in the other process."""

    def write(self, summary: ArmSummary) -> None:
        """Write the summary, once, before the other process is asked to read it."""
        self._file.write(json.dumps(asdict(summary)).encode() + END)
        self._file.flush()

    def close(self) -> None:
        """Close the file in this process."""
        self._file.close()


def read_summary(fd: int) -> ArmSummary | None:
    """Return the summary in the file; None if it is missing or incomplete."""
    text = os.pread(fd, os.fstat(fd).st_size, 0)
    return ArmSummary(**json.loads(text)) if text.endswith(END) else None
