"""A job arrives unchanged at its worker."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.execution.trial.trial_jobs import Attempt, JobEncoder, WorkerJob, decode
from orchestrator.trials import PlannedTrial, Trial

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    settings=st.dictionaries(st.text(), values, max_size=4),
    seed=st.integers(0, 2**63),
    phase=st.sampled_from(["search", "confirm", "posthoc"]),
    splits=st.lists(st.text(), max_size=3).map(tuple),
    source=st.none() | st.just(Path("/sweep/checkpoints/ab cd")),
)
def test_encoded_attempt_is_decoded_unchanged(settings, seed, phase, splits, source):
    planned = PlannedTrial("id", "arm", phase, 0, seed)
    attempt = Attempt(Trial(planned, {}, settings, splits), 1, Path("/sweep/checkpoints/id"), source)
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
