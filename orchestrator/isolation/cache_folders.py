"""Folders in which libraries keep downloads and compiled code that all processes of a user share."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

VARIABLES = re.compile(r"_HOME$|CACHE")
"""Names of environment variables such as HF_HOME, TORCH_HOME, XDG_CACHE_HOME and NUMBA_CACHE_DIR."""


def cache_folders(root: Path, environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the cache folders that environment variables name, except those that contain `root`."""
    named = {Path(value) for name, value in environment.items() if VARIABLES.search(name)}
    real = root.resolve()
    absolute = sorted(each for each in named if each.is_absolute())
    return tuple(each for each in absolute if not real.is_relative_to(each.resolve()))
