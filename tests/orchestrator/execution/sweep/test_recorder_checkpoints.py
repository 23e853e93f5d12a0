"""The recorder deletes checkpoints that no later trial needs."""

from orchestrator.conductor.messages import Reply
from orchestrator.identity import SweepFolder
from orchestrator.spec.section import Resources
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.processes.logs import MemoryLog, record
from tests.support.specs.plans import make_plan
from tests.support.sweeps.driving import DONE, attempts
from trainables.protocol import Measurement

STOPPED = Outcome(OutcomeKind.STOPPED, "interrupted")
CRASH = Outcome(OutcomeKind.CRASHED, "KeyError")


def measurement_at(step):
    return Measurement(step, float(step), {"valid/score": 0.5})


def write_checkpoint(root, attempt, step=1):
    folder = SweepFolder(root).checkpoint(attempt.trial_id) / f"step-{step:09d}"
    folder.mkdir(parents=True)
    return folder.parent


def test_checkpoints_of_ended_trials_are_deleted_unless_confirmed(tmp_path):
    recorder = record(make_plan(1, trials_per_arm=2, seeds=(7, 8)), MemoryLog(), root=tmp_path)
    search_attempts = list(attempts(recorder))
    folders = [write_checkpoint(tmp_path, attempt) for attempt in search_attempts]
    recorder.record(search_attempts[0].trial_id, 1, Reply(measurement_at(1), 1, DONE))
    assert [folder.exists() for folder in folders] == [False, True]
    recorder.record(search_attempts[1].trial_id, 1, Reply(ended=STOPPED))
    assert folders[1].exists()
    recorder.record(recorder.next_attempt().trial_id, 2, Reply(measurement_at(1), 1, DONE))
    confirm_attempts = list(attempts(recorder))
    folders = [write_checkpoint(tmp_path, attempt) for attempt in confirm_attempts]
    recorder.record(confirm_attempts[0].trial_id, 1, Reply(measurement_at(1), 1, DONE))
    recorder.record(confirm_attempts[1].trial_id, 1, Reply(ended=CRASH))
    assert [folder.exists() for folder in folders] == [True, False]


def test_leftover_checkpoints_of_a_killed_session_are_deleted_at_the_next_start(tmp_path):
    log, plan = MemoryLog(), make_plan(1, resources=Resources(retries=0))
    recorder = record(plan, log, root=tmp_path)
    ended_trial, running_trial = recorder.next_attempt(), recorder.next_attempt()
    recorder.record(ended_trial.trial_id, 1, Reply(measurement_at(1), ended=DONE))
    leftover, needed = write_checkpoint(tmp_path, ended_trial), write_checkpoint(tmp_path, running_trial)
    record(plan, log, root=tmp_path)
    assert (leftover.exists(), needed.exists()) == (False, True)
