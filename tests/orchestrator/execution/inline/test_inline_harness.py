"""The harness of a trial restores checkpoints, validates measurements, writes checkpoints and explains every
end."""

import errno
import shutil
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.execution.checkpoints import worker_checkpoints as checkpoints
from orchestrator.execution.trial.worker import Harness, load_workload
from orchestrator.execution.trial.worker_measurements import (
    MAX_EXAMPLES_CHARS,
    BadMeasurement,
    validate_measurement,
)
from orchestrator.trials import OutcomeKind
from tests.support.processes.logs import Clock
from tests.support.specs.examples import examples
from tests.support.specs.plans import make_arm
from tests.support.sweeps.workloads import PATH, Synthetic
from trainables.protocol import Job, Measurement


def make_job(tmp_path, **train):
    return Job(make_arm("arm", **train).settings, seed=3, data_dir=tmp_path / "data")


def start(tmp_path, folder="trial", checkpoint_seconds=0.0, **train):
    """Start a harness with a trial."""
    harness = Harness(PATH, checkpoint_seconds=checkpoint_seconds)
    harness.start(make_job(tmp_path, **train), tmp_path / folder)
    return harness


def collect_replies(harness, max_replies=99):
    replies = []
    while len(replies) < max_replies and not (replies and replies[-1].ended):
        replies.append(harness.advance())
    return replies


def measurements_by_step(replies):
    """Return the measurements in order of steps; a measurement repeated after a restore counts once."""
    steps = {reply.measurement.step: reply.measurement for reply in replies if reply.measurement}
    return [steps[step] for step in sorted(steps)]


def run_whole_trial(tmp_path, **train):
    return collect_replies(start(tmp_path, "whole", **train))


def test_trial_runs_to_its_end_and_writes_a_last_checkpoint(tmp_path):
    replies = collect_replies(start(tmp_path, checkpoint_seconds=1e9, steps=3))
    assert [reply.measurement.step for reply in replies] == [1, 2, 3]
    assert [reply.checkpoint for reply in replies] == [None, None, 3]
    assert (replies[-1].ended.kind, "3" in replies[-1].ended.reason) == (OutcomeKind.FINISHED, True)


@given(st.lists(st.integers(1, 4), max_size=5), st.booleans())
@examples(20)
def test_killed_trial_continues_from_its_checkpoint(tmp_path_factory, lives, has_checkpoints):
    """A kill loses the process without any message; only the files on the disk remain."""
    tmp_path = tmp_path_factory.mktemp("killed")
    expected = measurements_by_step(run_whole_trial(tmp_path, steps=8))
    replies = []
    for life in [*lives, 99]:
        seconds = 0.0 if has_checkpoints else 1e9
        harness = start(tmp_path, checkpoint_seconds=seconds, steps=8, tally=True)
        replies += collect_replies(harness, max_replies=life)
    assert measurements_by_step(replies) == expected
    if has_checkpoints:
        steps = (tmp_path / "data/steps.txt").read_text().splitlines()
        assert len(steps) == len(set(steps)) == 8, "with a checkpoint after every step, no step may repeat"


@pytest.mark.parametrize("stored_examples", [[{"number": {1}}], ["a"], [{"a": "b" * MAX_EXAMPLES_CHARS}]])
def test_examples_that_cannot_be_stored_are_refused(stored_examples):
    with pytest.raises(BadMeasurement):
        validate_measurement(Measurement(1, 1.0, {}, stored_examples), None)


def test_examples_are_stored_as_json_and_survive_a_kill(tmp_path):
    measured = validate_measurement(
        Measurement(1, 1.0, {"valid/score": 0.5}, [{"words": ("a\0", "b")}]), None
    )
    assert measured.examples == ({"words": ["a\\x00", "b"]},)
    checkpoint = checkpoints.write(
        tmp_path / "trial", measured, lambda folder: (folder / "a").write_text("a")
    )
    assert checkpoint.measurement() == replace(measured, examples=[*measured.examples])


def test_trial_killed_after_its_last_step_ends_without_training(tmp_path):
    *_, last = collect_replies(start(tmp_path, steps=2, tally=True))
    repeated = start(tmp_path, steps=2, tally=True).advance()
    assert (repeated.measurement, repeated.ended) == (last.measurement, last.ended)
    assert len((tmp_path / "data/steps.txt").read_text().splitlines()) == 2


def test_trial_starts_at_the_newest_sound_checkpoint_or_again(tmp_path, caplog):
    harness = start(tmp_path)
    collect_replies(harness, max_replies=3)
    newest, older = checkpoints.list_checkpoints(tmp_path / "trial")
    (newest.state / "state.json").write_text("[3, 0]")
    harness.start(make_job(tmp_path), tmp_path / "trial")
    assert harness.advance().measurement.step == older.step == 2
    assert "step-000000003 " in caplog.text
    expected = measurements_by_step(run_whole_trial(tmp_path))
    assert measurements_by_step(collect_replies(harness)) == expected[2:]
    for checkpoint in checkpoints.list_checkpoints(tmp_path / "trial"):
        (checkpoint.folder / "checkpoint.json").unlink()
    assert measurements_by_step(collect_replies(start(tmp_path))) == expected


def test_state_refused_by_the_workload_is_skipped_with_a_new_workload(tmp_path, monkeypatch, caplog):
    def refuse(self, folder):
        self._step = 77
        raise RuntimeError("unexpected key in state")

    harness = start(tmp_path)
    collect_replies(harness, max_replies=2)
    monkeypatch.setattr(Synthetic, "restore", refuse)
    harness.start(make_job(tmp_path), tmp_path / "trial")
    assert harness.advance().measurement.step == 1
    assert caplog.text.count("RuntimeError('unexpected key in state')") == 2


def test_checkpoints_are_spaced_by_time(tmp_path):
    clock = Clock(0.0)
    harness = Harness(PATH, checkpoint_seconds=10.0, clock=clock)
    harness.start(make_job(tmp_path, steps=9), tmp_path / "trial")
    checkpoint_steps = []
    for now in (4.0, 10.0, 12.0, 19.0, 20.0, 29.0):
        clock.now = now
        checkpoint_steps.append(harness.advance().checkpoint)
    assert checkpoint_steps == [None, 2, None, None, 5, None]


def test_stop_writes_a_checkpoint_if_requested(tmp_path):
    for save, expected in ((True, 2), (False, None)):
        harness = start(tmp_path, f"trial-{save}", checkpoint_seconds=1e9)
        collect_replies(harness, max_replies=2)
        assert harness.stop(save=save).checkpoint == expected
        assert len(checkpoints.list_checkpoints(tmp_path / f"trial-{save}")) == save


def test_full_disk_loses_a_checkpoint_but_not_the_trial(tmp_path, monkeypatch, caplog):
    def fail_with_full_disk(self, folder):
        (folder / "state.json").write_text("[1")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Synthetic, "save", fail_with_full_disk)
    replies = collect_replies(start(tmp_path, steps=3))
    assert [reply.checkpoint for reply in replies] == [None, None, None]
    assert replies[-1].ended.kind is OutcomeKind.FINISHED
    assert "step 1" in caplog.text
    assert list((tmp_path / "trial").iterdir()) == []


def test_posthoc_trial_restores_only_the_last_checkpoint(tmp_path):
    harness = start(tmp_path, "confirmed")
    replies = collect_replies(harness)
    newest, _ = checkpoints.list_checkpoints(tmp_path / "confirmed")
    posthoc_job = replace(make_job(tmp_path), phase="posthoc", source=newest.folder, splits=("test",))
    harness.start(posthoc_job, tmp_path / "reevaluation")
    (reply,) = collect_replies(harness)
    assert reply.measurement.step == replies[-1].measurement.step
    assert "test/score" in reply.measurement.metrics
    (newest.state / "state.json").write_text("[4, 4]")
    harness.start(posthoc_job, tmp_path / "second")
    damaged_end = harness.advance().ended
    shutil.rmtree(newest.folder)
    harness.start(posthoc_job, tmp_path / "third")
    missing_end = harness.advance().ended
    for end in (damaged_end, missing_end):
        assert end.kind is OutcomeKind.CRASHED
        assert str(newest.folder) in end.reason
        assert "`haltsweep resume NAME --retry failed`" in end.reason


@pytest.mark.parametrize("path", ["no.such.module:X", "tests.support.sweeps.workloads:Nothing", "nonsense"])
def test_workload_that_cannot_be_imported_raises_an_error(path):
    with pytest.raises(InputError, match=path):
        load_workload(path)
