"""Names, ids, seeds and paths: made and parsed here and nowhere else."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.files.sqlite_files import url_of

DIGEST_CHARACTERS = 16


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(*parts: Any) -> str:
    """Hex digest of JSON values; the identity of arms, trials and datasets."""
    return hashlib.blake2b(canonical(list(parts)).encode()).hexdigest()[:DIGEST_CHARACTERS]


def derive_seed(*parts: str | int) -> int:
    """A 31-bit seed (what every library accepts), a pure function of `parts`."""
    return int.from_bytes(hashlib.blake2b(canonical(list(parts)).encode(), digest_size=4).digest()) >> 1


@dataclass(frozen=True, slots=True)
class SweepFolder:
    """The files of one sweep."""

    root: Path

    @property
    def name(self) -> str:
        """The sweep's name is its folder's."""
        return self.root.name

    @property
    def spec(self) -> Path:
        """The spec as launched, overrides and profile applied."""
        return self.root / "spec.yaml"

    @property
    def plan(self) -> Path:
        """The plan, canonical JSON."""
        return self.root / "plan.json"

    @property
    def provenance(self) -> Path:
        """Commit, versions, devices."""
        return self.root / "provenance.json"

    @property
    def ledger(self) -> Path:
        """The event log, unless the sweep was launched with another storage."""
        return self.root / "ledger.db"

    @property
    def ledger_url(self) -> str:
        """SQLAlchemy URL of the embedded ledger."""
        # The file itself is not resolved: a symbolic link to itself there is for who opens it to tell.
        return url_of(self.root.resolve() / self.ledger.name)

    @property
    def records(self) -> Path:
        """Projection: one row a trial."""
        return self.root / "records.parquet"

    @property
    def measurements(self) -> Path:
        """Projection: one row a trial, step and metric."""
        return self.root / "measurements"

    @property
    def checkpoints(self) -> Path:
        """One folder a trial."""
        return self.root / "checkpoints"

    @property
    def has_traces(self) -> bool:
        """Whether something is here that only a ledger with events leads to."""
        return any(trace.exists() for trace in (self.checkpoints, self.records, self.measurements))

    @property
    def scratch(self) -> Path:
        """Return the folder for temporary folders of running attempts."""
        return self.root / "scratch"

    def kept(self, trial_id: str) -> Path:
        """Return the folder for files of a trial that match `keep`."""
        return self.root / "kept" / trial_id

    def checkpoint(self, trial_id: str) -> Path:
        """Folder that holds the checkpoints of one trial, newest step last."""
        return self.checkpoints / trial_id

    @property
    def logs(self) -> Path:
        """One folder a trial that printed something."""
        return self.root / "logs"

    def log(self, trial_id: str, attempt: int) -> Path:
        """What one attempt at a trial printed; attempts are numbered by their fencing token, from 1."""
        return self.logs / trial_id / f"attempt-{attempt}.log"

    @property
    def report(self) -> Path:
        """Tables, figures and the text."""
        return self.root / "report"


CHECKPOINT_PREFIX = "step-"


def checkpoint_name(step: int) -> str:
    """Folder of the checkpoint at `step`; names sort as steps do."""
    return f"{CHECKPOINT_PREFIX}{step:09d}"


def checkpoint_step(name: str) -> int | None:
    """The step of a folder `checkpoint_name` named; None for any other."""
    digits = name.removeprefix(CHECKPOINT_PREFIX)
    return int(digits) if name.startswith(CHECKPOINT_PREFIX) and digits.isdecimal() else None
