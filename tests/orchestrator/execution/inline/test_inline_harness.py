"""One trial inside a worker: restored, measured, saved, and every ending explained."""

import copy
import errno
import json
import shutil
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.execution.checkpoints import worker_checkpoints as checkpoints
from orchestrator.execution.trial import worker
from orchestrator.execution.trial.worker import Harness, load_workload
from orchestrator.execution.trial.worker_measurements import (
    EXAMPLES_MOST,
    BadMeasurement,
    validate_measurement,
)
from orchestrator.trials import OutcomeKind
from tests.support.processes.logs import Clock
from tests.support.specs.examples import examples
from tests.support.specs.plans import make_arm
from tests.support.sweeps.workloads import PATH, Synthetic
from trainables.protocol import Diverged, Job, Measurement


def job(tmp_path, **train):
    return Job(make_arm("arm", **train).settings, seed=3, data_dir=tmp_path / "data")


def replies(harness, most=99):
    found = []
    while len(found) < most and not (found and found[-1].ended):
        found.append(harness.advance())
    return found


def chain(found):
    """The undisturbed history: repeats of what a checkpoint re-emits are shown once."""
    steps = {each.measurement.step: each.measurement for each in found if each.measurement}
    return [steps[step] for step in sorted(steps)]


def whole(tmp_path, **train):
    harness = Harness(PATH)
    harness.start(job(tmp_path, **train), tmp_path / "whole")
    return replies(harness)


def test_a_trial_runs_to_its_end_with_a_final_checkpoint(tmp_path):
    harness = Harness(PATH)
    harness.start(job(tmp_path, steps=3), tmp_path / "trial")
    found = replies(harness)
    assert [each.measurement.step for each in found] == [1, 2, 3]
    assert [each.checkpoint for each in found] == [None, None, 3]
    assert (found[-1].ended.kind, found[-1].ended.reason) == (OutcomeKind.FINISHED, "ran to step 3")


@given(st.lists(st.integers(1, 4), max_size=5), st.booleans())
@examples(20)
def test_killed_anywhere_a_trial_goes_on_from_its_checkpoint(tmp_path_factory, lives, saves):
    """Killed: the process is gone, nothing was told, only the disk is left."""
    tmp_path = tmp_path_factory.mktemp("killed")
    expected = chain(whole(tmp_path, steps=8))
    found = []
    for life in [*lives, 99]:
        harness = Harness(PATH, checkpoint_seconds=0.0 if saves else 1e9)
        harness.start(job(tmp_path, steps=8, tally=True), tmp_path / "trial")
        found += replies(harness, most=life)
    assert chain(found) == expected
    if saves:
        steps = (tmp_path / "data/steps.txt").read_text().splitlines()
        assert len(steps) == len(set(steps)) == 8, "with a checkpoint a step no work is done twice"


def test_what_a_trial_does_to_its_settings_reaches_no_other(tmp_path, monkeypatch):
    seen = []

    class Changing(Synthetic):
        def __init__(self, job):
            super().__init__(job)
            seen.append(dict(job.settings["model"]))
            job.settings["model"]["x"] = job.settings["more"] = 7

    monkeypatch.setattr(worker, "load_workload", lambda _: Changing)
    given = job(tmp_path, steps=1)
    before = copy.deepcopy(given.settings)
    for name in ("one", "other"):
        Harness(PATH).start(given, tmp_path / name)
    assert seen[0] == seen[1]
    assert given.settings == before


@pytest.mark.parametrize(
    ("seconds", "expected"), [(-1.0, "0 or more, got -1.0"), (float("nan"), "must be finite")]
)
def test_seconds_are_no_metric_that_may_diverge(seconds, expected):
    with pytest.raises(BadMeasurement, match=expected) as raised:
        validate_measurement(Measurement(1, seconds, {}), None)
    assert raised.value.outcome.kind is OutcomeKind.CRASHED


def test_the_first_reply_after_a_restore_is_the_checkpoints_own(tmp_path):
    harness = Harness(PATH, checkpoint_seconds=0.0)
    harness.start(job(tmp_path), tmp_path / "trial")
    *_, last = replies(harness, most=2)
    harness.start(job(tmp_path), tmp_path / "trial")
    again = harness.advance()
    assert again.measurement == last.measurement
    assert again.checkpoint is None, "it is on the disk already"
    assert harness.advance().measurement.step == 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([{"number": {1}}], "examples must be JSON values .*; fix the code"),
        ([{"number": float("nan")}], "examples must be JSON values .*; fix the code"),
        (["a"], "examples must be a list of mappings, got a list; fix the code"),
        ({"a": 1}, "examples must be a list of mappings, got a dict; fix the code"),
        ([{"a": "b" * EXAMPLES_MOST}], "examples must have at most 1,048,576 characters as JSON, got"),
    ],
)
def test_examples_that_cannot_be_stored_are_refused(given, expected):
    with pytest.raises(BadMeasurement, match=expected):
        validate_measurement(Measurement(1, 1.0, {}, given), None)


def test_examples_are_stored_as_json_and_survive_a_kill(tmp_path):
    shown = validate_measurement(Measurement(1, 1.0, {"valid/score": 0.5}, [{"words": ("a\0", "b")}]), None)
    assert shown.examples == ({"words": ["a\\x00", "b"]},)
    made = checkpoints.write(tmp_path / "trial", shown, lambda folder: (folder / "a").write_text("a"))
    assert made.measurement() == replace(shown, examples=[*shown.examples])


def test_a_trial_killed_after_its_last_step_ends_without_training(tmp_path):
    harness = Harness(PATH)
    harness.start(job(tmp_path, steps=2, tally=True), tmp_path / "trial")
    *_, last = replies(harness)
    harness.start(job(tmp_path, steps=2, tally=True), tmp_path / "trial")
    again = harness.advance()
    assert (again.measurement, again.ended) == (last.measurement, last.ended)
    assert len((tmp_path / "data/steps.txt").read_text().splitlines()) == 2


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, caplog):
    harness = Harness(PATH, checkpoint_seconds=0.0)
    harness.start(job(tmp_path), tmp_path / "trial")
    replies(harness, most=3)
    newest, older = checkpoints.list_checkpoints(tmp_path / "trial")
    (newest.state / "state.json").write_text("[3, 0]")
    harness.start(job(tmp_path), tmp_path / "trial")
    assert harness.advance().measurement.step == older.step == 2
    assert "step-000000003 is skipped" in caplog.text
    assert chain(replies(harness)) == chain(whole(tmp_path))[2:]


def test_with_every_checkpoint_damaged_a_trial_begins_anew(tmp_path):
    harness = Harness(PATH, checkpoint_seconds=0.0)
    harness.start(job(tmp_path), tmp_path / "trial")
    replies(harness, most=3)
    for each in checkpoints.list_checkpoints(tmp_path / "trial"):
        (each.folder / "checkpoint.json").unlink()
    harness.start(job(tmp_path), tmp_path / "trial")
    assert chain(replies(harness)) == chain(whole(tmp_path))


def test_a_state_the_workload_refuses_is_passed_over_with_a_fresh_workload(tmp_path, monkeypatch, caplog):
    def refuse(self, folder):
        self._step = 77
        raise RuntimeError("unexpected key in state")

    harness = Harness(PATH, checkpoint_seconds=0.0)
    harness.start(job(tmp_path), tmp_path / "trial")
    replies(harness, most=2)
    monkeypatch.setattr(Synthetic, "restore", refuse)
    harness.start(job(tmp_path), tmp_path / "trial")
    assert harness.advance().measurement.step == 1
    assert caplog.text.count("is skipped: RuntimeError('unexpected key in state')") == 2


def test_checkpoints_are_spaced_by_time(tmp_path):
    clock = Clock(0.0)
    harness = Harness(PATH, checkpoint_seconds=10.0, clock=clock)
    harness.start(job(tmp_path, steps=9), tmp_path / "trial")
    saved = []
    for now in (4.0, 10.0, 12.0, 19.0, 20.0, 29.0):
        clock.now = now
        saved.append(harness.advance().checkpoint)
    assert saved == [None, 2, None, None, 5, None]


def test_a_stop_saves_when_asked_to(tmp_path):
    for save, kept in ((True, 2), (False, None)):
        harness = Harness(PATH)
        harness.start(job(tmp_path), tmp_path / f"trial-{save}")
        replies(harness, most=2)
        assert harness.stop(save=save).checkpoint == kept
        assert [each.step for each in checkpoints.list_checkpoints(tmp_path / f"trial-{save}")] == [2] * save


def test_a_stop_before_anything_was_measured_saves_nothing(tmp_path):
    harness = Harness(PATH)
    assert harness.stop(save=True).checkpoint is None
    harness.start(job(tmp_path), tmp_path / "trial")
    assert harness.stop(save=True).checkpoint is None


def test_a_full_disk_costs_a_checkpoint_not_the_trial(tmp_path, monkeypatch, caplog):
    def full(self, folder):
        (folder / "state.json").write_text("[1")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Synthetic, "save", full)
    harness = Harness(PATH, checkpoint_seconds=0.0)
    harness.start(job(tmp_path, steps=3), tmp_path / "trial")
    found = replies(harness)
    assert [each.checkpoint for each in found] == [None, None, None]
    assert found[-1].ended.kind is OutcomeKind.FINISHED
    assert "no checkpoint at step 1" in caplog.text
    assert list((tmp_path / "trial").iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        ("diverge", OutcomeKind.DIVERGED, str(Diverged(2, float("nan")))),
        ("oom", OutcomeKind.OUT_OF_MEMORY, "MemoryError: no room for the batch"),
        ("raise", OutcomeKind.CRASHED, "KeyError: 'a mistake of the workload'"),
        ("raise-at-once", OutcomeKind.CRASHED, "RuntimeError: not even built"),
    ],
)
def test_every_fault_is_an_outcome_and_the_harness_goes_on(tmp_path, fault, kind, text):
    harness = Harness(PATH)
    harness.start(job(tmp_path, fault=fault), tmp_path / "trial")
    last = replies(harness)[-1]
    assert last.measurement is None
    assert (last.ended.kind, last.ended.reason.splitlines()[0]) == (kind, text)
    assert harness.advance().ended == last.ended
    harness.start(job(tmp_path), tmp_path / "another")
    assert replies(harness)[-1].ended.kind is OutcomeKind.FINISHED


def test_a_workload_whose_steps_do_not_increase_has_crashed(tmp_path, monkeypatch):
    monkeypatch.setattr(Synthetic, "advance", lambda self: Measurement(1, 1.0, {}))
    harness = Harness(PATH)
    harness.start(job(tmp_path), tmp_path / "trial")
    ended = replies(harness)[-1].ended
    assert ended.kind is OutcomeKind.CRASHED
    assert "steps must increase, got 1 after 1; fix the code" in ended.reason


def test_a_workload_that_cannot_close_has_ended_all_the_same(tmp_path, monkeypatch, caplog):
    def broken(self):
        raise RuntimeError("busy")

    monkeypatch.setattr(Synthetic, "close", broken)
    harness = Harness(PATH)
    harness.start(job(tmp_path), tmp_path / "trial")
    assert replies(harness)[-1].ended.kind is OutcomeKind.FINISHED
    assert "closing trial trial failed: RuntimeError('busy')" in caplog.text


def test_interrupts_pass_through(tmp_path, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Synthetic, "advance", interrupted)
    harness = Harness(PATH)
    harness.start(job(tmp_path), tmp_path / "trial")
    with pytest.raises(KeyboardInterrupt):
        harness.advance()


def test_a_reread_gets_the_state_of_the_last_checkpoint_and_of_no_older_one(tmp_path):
    harness = Harness(PATH, checkpoint_seconds=0.0)
    harness.start(job(tmp_path), tmp_path / "confirmed")
    found = replies(harness)
    newest, _ = checkpoints.list_checkpoints(tmp_path / "confirmed")
    reread = replace(job(tmp_path), phase="posthoc", source=newest.folder, splits=("test",))
    harness.start(reread, tmp_path / "reread")
    (reply,) = replies(harness)
    assert reply.measurement.step == found[-1].measurement.step
    assert "test/score" in reply.measurement.metrics
    (newest.state / "state.json").write_text("[4, 4]")
    harness.start(reread, tmp_path / "again")
    damaged = harness.advance().ended
    shutil.rmtree(newest.folder)
    harness.start(reread, tmp_path / "and-again")
    gone = harness.advance().ended
    for ended, why in ((damaged, "is damaged (files of "), (gone, "is not there: it found no room")):
        assert ended.kind is OutcomeKind.CRASHED
        shown = f"a posthoc trial reads the last checkpoint of its confirmed trial, and {newest.folder} {why}"
        assert ended.reason.startswith(shown)
        assert ended.reason.endswith("; fix this, then `haltsweep resume NAME --retry failed`")


def test_leftovers_of_a_killed_worker_go_when_the_trial_starts_again(tmp_path):
    left = tmp_path / "trial" / f"{checkpoints.UNFINISHED}abc"
    left.mkdir(parents=True)
    (left / "half.json").write_text(json.dumps([]))
    Harness(PATH).start(job(tmp_path), tmp_path / "trial")
    assert not left.exists()


@pytest.mark.parametrize(
    "path", ["no.such.module:X", "tests.support.sweeps.workloads:Nothing", "nonsense", ":X"]
)
def test_a_workload_that_cannot_be_found_is_bad_input(path):
    with pytest.raises(InputError, match=f"must be given as module:name that can be imported, got '{path}'"):
        load_workload(path)
