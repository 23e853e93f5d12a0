"""Define the job of a worker, sent to other machines as one line of JSON."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.files.json_values import from_json_values, to_json_values
from orchestrator.identity import SweepFolder, canonical
from orchestrator.isolation.file_versions import output_files
from orchestrator.isolation.working_folder import Mode
from orchestrator.trials import Trial
from trainables.protocol import Job


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a trial by one worker."""

    trial: Trial
    token: int
    """Fencing token: the first attempt has 1, and only the newest attempt may write."""
    checkpoints: Path
    """Folder of the trial's checkpoints."""
    source: Path | None
    """For `posthoc`: path of the last checkpoint of the confirm trial, as its workers name it."""

    @property
    def trial_id(self) -> str:
        """Id of the trial."""
        return self.trial.trial_id

    @property
    def log(self) -> Path:
        """Log file for the output of the attempt."""
        return SweepFolder(self.checkpoints.parent.parent).log(self.trial_id, self.token)

    def job(self, data_dir: Path) -> Job:
        """Return the job from which the workload is built."""
        planned = self.trial.planned
        return Job(
            settings=self.trial.settings,
            seed=planned.seed,
            phase="confirm" if planned.phase == "cross" else planned.phase,
            splits=self.trial.splits,
            data_dir=data_dir,
            source=self.source,
            halting_examples=self.trial.halting_examples,
        )


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """All that a worker needs for one attempt at a trial."""

    workload: str
    """Trainable as `module:name`, importable on the worker's machine."""
    checkpoint_seconds: float
    cpus: float
    gpus: float
    checkpoints: Path
    """Folder of the trial in the sweep; with a `store`, only the folder's name is used."""
    job: Job
    store: str | None = None
    """URI of the checkpoint store; None for the folder of the sweep."""
    mark: tuple[str, str] | None = None
    """Path and content of a marker file that every node must be able to read."""
    excluded_nodes: tuple[str, ...] = ()
    """Ids of nodes that must not run the attempt."""
    log: Path | None = None
    """Log file for the output of the attempt."""
    scratch: Path = field(default_factory=Path)
    """Temporary folder of this attempt, below the folder of the sweep."""
    kept_files: Path = field(default_factory=Path)
    """Destination of files that match `keep`."""
    keep: tuple[str, ...] = ()
    """Patterns of the trial's files to retain."""
    working_folder: Mode = "private"
    launch_folder: Path = field(default_factory=Path)
    open_files: tuple[Path, ...] = ()
    """Files that processes of the launcher's session write, such as the log of the launch."""
    records_reads: bool = False
    """Whether the settings record which of their fields the training code reads."""


@dataclass(frozen=True, slots=True)
class JobEncoder:
    """Encoder of attempts, with the settings that all attempts of a sweep share."""

    workload: str
    checkpoint_seconds: float
    cpus: float
    gpus: float
    data_dir: Path
    store: str | None = None
    mark: tuple[str, str] | None = None
    launch_folder: Path = field(default_factory=Path.cwd)
    keep: tuple[str, ...] = ()
    working_folder: Mode = "private"
    open_files: tuple[Path, ...] = field(default_factory=output_files)

    def worker_job(self, attempt: Attempt, excluded_nodes: tuple[str, ...] = ()) -> WorkerJob:
        """Return the job for one attempt, with absolute paths, since workers run in other folders."""
        job = attempt.job(self.data_dir.resolve())
        sweep = SweepFolder(attempt.checkpoints.resolve().parent.parent)
        scratch = sweep.scratch / f"{attempt.trial_id}-{attempt.token}"
        source = job.source.resolve() if job.source is not None else None
        return WorkerJob(
            workload=self.workload,
            checkpoint_seconds=self.checkpoint_seconds,
            cpus=self.cpus,
            gpus=self.gpus,
            checkpoints=attempt.checkpoints.resolve(),
            job=replace(job, source=source, folder=scratch / "files"),
            store=self.store,
            mark=self.mark,
            excluded_nodes=excluded_nodes,
            log=attempt.log.resolve(),
            scratch=scratch,
            kept_files=sweep.kept_files(attempt.trial_id),
            keep=self.keep,
            working_folder=self.working_folder,
            launch_folder=self.launch_folder,
            open_files=tuple(path for path in self.open_files if path.is_relative_to(self.launch_folder)),
        )

    def encode(self, attempt: Attempt, excluded_nodes: tuple[str, ...] = ()) -> str:
        """Return `worker_job` as JSON."""
        return canonical(to_json_values(self.worker_job(attempt, excluded_nodes)))


def decode(text: str) -> WorkerJob:
    """Return the job from a string created by `JobEncoder.encode`."""
    return from_json_values(WorkerJob, json.loads(text))
