"""Find folders in which libraries store downloads and compiled code for all processes of a user."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

VARIABLES = re.compile(r"_HOME$|CACHE")
"""Pattern of environment variables such as HF_HOME, TORCH_HOME, XDG_CACHE_HOME and NUMBA_CACHE_DIR."""


def cache_folders(root: Path, environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the cache folders in environment variables, except folders that contain `root`."""
    paths = {Path(value) for name, value in environment.items() if VARIABLES.search(name)}
    real = root.resolve()
    absolute = sorted(path for path in paths if path.is_absolute())
    return tuple(path for path in absolute if not real.is_relative_to(path.resolve()))
