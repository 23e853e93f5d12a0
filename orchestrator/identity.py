"""Create and parse all names, ids, seeds and paths of a sweep."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.files.sqlite_files import sqlite_url

DIGEST_CHARACTERS = 16


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(*parts: Any) -> str:
    """Return a hex digest of JSON values, used as the id of arms, trials and datasets."""
    return hashlib.blake2b(canonical(list(parts)).encode()).hexdigest()[:DIGEST_CHARACTERS]


def derive_seed(*parts: str | int) -> int:
    """Return a 31-bit seed (a range that every library accepts) that depends only on `parts`."""
    return int.from_bytes(hashlib.blake2b(canonical(list(parts)).encode(), digest_size=4).digest()) >> 1


@dataclass(frozen=True, slots=True)
class SweepFolder:
    """Paths of the files of one sweep."""

    root: Path

    @property
    def name(self) -> str:
        """Return the name of the sweep, which is the name of its folder."""
        return self.root.name

    @property
    def spec(self) -> Path:
        """Return the path of the spec as launched, with overrides and profile applied."""
        return self.root / "spec.yaml"

    @property
    def plan(self) -> Path:
        """Return the path of the plan, in canonical JSON."""
        return self.root / "plan.json"

    @property
    def provenance(self) -> Path:
        """Return the path of the file with commit, versions and devices."""
        return self.root / "provenance.json"

    @property
    def ledger(self) -> Path:
        """Return the path of the event log, used unless the sweep was launched with another storage."""
        return self.root / "ledger.db"

    @property
    def ledger_url(self) -> str:
        """Return the SQLAlchemy URL of the embedded ledger."""
        # The file itself is not resolved: opening the ledger reports a symbolic link that points to itself.
        return sqlite_url(self.root.resolve() / self.ledger.name)

    @property
    def records(self) -> Path:
        """Return the path of the table with one row per trial, derived from the ledger."""
        return self.root / "records.parquet"

    @property
    def measurements(self) -> Path:
        """Return the path of the table with one row per trial, step and metric, derived from the ledger."""
        return self.root / "measurements"

    @property
    def checkpoint_folder(self) -> Path:
        """Return the folder with one subfolder of checkpoints per trial."""
        return self.root / "checkpoints"

    @property
    def has_traces(self) -> bool:
        """Return whether the folder has files that exist only if the ledger has events."""
        return any(trace.exists() for trace in (self.checkpoint_folder, self.records, self.measurements))

    @property
    def scratch(self) -> Path:
        """Return the folder for temporary folders of running attempts."""
        return self.root / "scratch"

    def kept_files(self, trial_id: str) -> Path:
        """Return the folder for files of a trial that match `keep`."""
        return self.root / "kept" / trial_id

    def checkpoint(self, trial_id: str) -> Path:
        """Return the folder of the checkpoints of one trial; the newest step sorts last."""
        return self.checkpoint_folder / trial_id

    @property
    def logs(self) -> Path:
        """Return the folder with one subfolder per trial that printed output."""
        return self.root / "logs"

    def log(self, trial_id: str, attempt: int) -> Path:
        """Return the path of the output of one attempt at a trial.

        Attempts are numbered by their fencing token, from 1.
        """
        return self.logs / trial_id / f"attempt-{attempt}.log"

    @property
    def report(self) -> Path:
        """Return the folder of the report: tables, figures and text."""
        return self.root / "report"


CHECKPOINT_PREFIX = "step-"


def checkpoint_name(step: int) -> str:
    """Return the folder name of the checkpoint at `step`; names sort in the order of steps."""
    return f"{CHECKPOINT_PREFIX}{step:09d}"


def checkpoint_step(name: str) -> int | None:
    """Return the step in a folder name created by `checkpoint_name`; None for any other name."""
    digits = name.removeprefix(CHECKPOINT_PREFIX)
    return int(digits) if name.startswith(CHECKPOINT_PREFIX) and digits.isdecimal() else None
