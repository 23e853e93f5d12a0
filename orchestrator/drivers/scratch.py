"""Temporary folders of launches and workers: where they are, and clearing away those of killed ones."""

import tempfile
from pathlib import Path

from orchestrator.abandoned import clear_folders
from trainables.protocol import TRIALS

RAY = "haltsweep-ray-"
"""What a Ray of this machine's own and Tune write; the process id follows."""
CHECKPOINTS = "haltsweep-checkpoints-"
"""Copies of checkpoints that are kept elsewhere; the process id follows."""
SHORT = 9
"""Ray's sockets are up to 98 bytes below it, and the path of a socket may have 107."""


def short_folder() -> Path:
    """Where Ray's files go: the temporary folder of this user, unless its path is too long for sockets."""
    folder = Path(tempfile.gettempdir())
    return folder if len(bytes(folder)) <= SHORT else Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder in it  # nosec B108


def clear_abandoned() -> None:
    """Remove what killed launches and workers of this user left behind."""
    clear_folders(short_folder(), RAY)
    for prefix in (CHECKPOINTS, TRIALS):
        clear_folders(Path(tempfile.gettempdir()), prefix)
