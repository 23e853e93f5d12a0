"""One run of a trial by one worker, as it is handed out."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.identity import SweepFolder
from orchestrator.trials import Trial
from trainables.protocol import Job


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a trial by one worker."""

    trial: Trial
    token: int
    """Fencing token: the first attempt has 1, and only the newest may write."""
    checkpoints: Path
    """Folder that holds the trial's checkpoints."""
    source: Path | None
    """`posthoc`: the last checkpoint of the confirmed trial, as its workers name it."""

    @property
    def trial_id(self) -> str:
        """Id of the trial."""
        return self.trial.trial_id

    @property
    def log(self) -> Path:
        """Where what the attempt prints is kept: beside the checkpoints."""
        return SweepFolder(self.checkpoints.parent.parent).log(self.trial_id, self.token)

    def job(self, data_dir: Path) -> Job:
        """What the workload is built with."""
        planned = self.trial.planned
        return Job(self.trial.settings, planned.seed, planned.phase, self.trial.splits, data_dir, self.source)
