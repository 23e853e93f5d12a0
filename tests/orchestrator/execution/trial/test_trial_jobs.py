"""A job arrives unchanged at its worker."""

from dataclasses import replace
from pathlib import Path

from orchestrator.execution.trial.trial_jobs import Attempt, JobEncoder, WorkerJob, decode
from orchestrator.trials import PlannedTrial, Trial


def test_encoded_attempt_is_decoded_unchanged():
    settings = {"a b": [1, 0.1, None, {"ü": True}]}
    planned = PlannedTrial("id", "arm", "posthoc", 0, 2**63)
    trial = Trial(planned, {}, settings, ("test", "länge"))
    attempt = Attempt(trial, 1, Path("/sweep/checkpoints/id"), Path("/sweep/checkpoints/ab cd"))
    encoder = JobEncoder(
        "module:Class", 30.0, 1.0, 0.25, Path("/data"), keep=("*.pt",), working_folder="shared"
    )
    decoded = decode(encoder.encode(attempt))
    job = replace(attempt.job(Path("/data")), folder=decoded.scratch / "files")
    assert decoded == WorkerJob(
        *("module:Class", 30.0, 1.0, 0.25, Path("/sweep/checkpoints/id"), job),
        log=Path("/sweep/logs/id/attempt-1.log"),
        scratch=decoded.scratch,
        kept_files=decoded.kept_files,
        keep=("*.pt",),
        working_folder="shared",
        launch_folder=Path.cwd(),
    )
    assert decoded.scratch.is_relative_to("/sweep")
    assert decoded.kept_files.is_relative_to("/sweep")


def test_relative_paths_are_made_absolute():
    """The working directory of a worker differs."""
    trial = Trial(PlannedTrial("id", "arm", "search", 0, 1), {}, {})
    attempt = Attempt(trial, 1, Path("runs/s/checkpoints/id"), Path("runs/s/checkpoints/x"))
    decoded = decode(JobEncoder("m:C", 1.0, 1.0, 0.0, Path("data")).encode(attempt))
    assert decoded.checkpoints == Path.cwd() / "runs/s/checkpoints/id"
    assert decoded.job.source == Path.cwd() / "runs/s/checkpoints/x"
    assert decoded.job.data_dir == Path.cwd() / "data"
