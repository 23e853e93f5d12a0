"""What a check of something kept has found, for people and for scripts."""

from dataclasses import dataclass
from typing import Literal

Soundness = Literal["sound", "behind", "absent", "unknown", "damaged"]
"""`behind`: as far as it goes it is right, and the ledger has more. `absent`: not there, and it need not be.
`unknown`: it could not be looked at."""
BAD: frozenset[Soundness] = frozenset({"unknown", "damaged"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    what: str
    """files, ledger, checkpoints, data, parquet, mlflow or report."""
    verdict: Soundness
    detail: str
    remedy: str = ""
    """What to do about it; empty where nothing need be done, or `detail` is an error, which says it."""
