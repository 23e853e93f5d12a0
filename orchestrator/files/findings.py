"""Results of checks of stored data, for display and for scripts."""

from dataclasses import dataclass
from typing import Literal

Soundness = Literal["sound", "behind", "absent", "unknown", "damaged"]
"""Verdict of a check.

- `behind`: correct so far, but the ledger has more.
- `absent`: missing, which is allowed.
- `unknown`: could not be checked.
"""
BAD: frozenset[Soundness] = frozenset({"unknown", "damaged"})


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    what: str
    """Checked part: files, ledger, checkpoints, data, parquet, mlflow or report."""
    verdict: Soundness
    detail: str
    remedy: str = ""
    """Action for the user; empty if none is needed, or if `detail` is an error message that states it."""
