"""kill -9 of the launching process, everywhere: after resuming nothing is lost, doubled or different."""

import random

import pytest

from orchestrator.execution.sweep.launch import resume_sweep
from orchestrator.spec.section import Resources
from tests.faults.kills.chaos import Place, check_log
from tests.support.processes.logs import content
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan

KILLS = 8
"""Kills of each chain."""
STRIDE = 2
"""Distance of two tested moments; 1 tests every moment."""
CHAINS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1,))]
ASHA = {"name": "asha", "grace_steps": 1, "reduction": 2}


def sweep():
    """Every phase, a sampler that learns, an early stopper, a trial that fails."""
    arms = [make_arm("one", tally=True), make_arm("two", tally=True, fault="raise", fault_at=4)]
    sampler = {"name": "tpe", "n_startup_trials": 1}
    return make_plan(
        arms,
        trials_per_arm=3,
        sampler=sampler,
        stopper=ASHA,
        seeds=(7, 8),
        posthoc=({"model.shift": 0.5},),
        resources=Resources(checkpoint_seconds=AT_EVERY_REPORT_S),
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The same sweep without a crash, and how many moments it has."""
    place = Place(tmp_path_factory.mktemp("undisturbed"), sweep())
    return place, place.moments()


def check_against(place, undisturbed, kills):
    """What the killed sweep recorded is what the undisturbed one did, for little more work."""
    check_log(place.events(), place.plan)
    assert content(place.events()) == content(undisturbed.events())
    assert set(place.steps_done()) == set(undisturbed.steps_done())
    # Every report is followed by a checkpoint: a kill costs at most the step it falls into.
    assert (place.steps_done() - undisturbed.steps_done()).total() <= kills


@pytest.mark.parametrize("seed", CHAINS)
def test_killed_again_and_again_at_random_moments(tmp_path, undisturbed, seed):
    reference, moments = undisturbed
    stream = random.Random(seed)
    place = Place(tmp_path, sweep())
    for killed in range(KILLS):
        died = not place.session(die_at=stream.randint(1, moments // KILLS))
        assert died, f"the sweep must not be over after {killed} kills"
    assert place.session()
    check_against(place, reference, KILLS)


@pytest.mark.slow
@pytest.mark.longest
def test_killed_around_every_write_of_one_trial_and_twice_before_its_first_step(tmp_path):
    plan = make_plan(
        [make_arm("one", steps=2, tally=True)],
        trials_per_arm=1,
        seeds=(),
        resources=Resources(checkpoint_seconds=AT_EVERY_REPORT_S),
    )
    reference = Place(tmp_path / "undisturbed", plan)
    moments = reference.moments()
    twice = 0
    for moment in range(1, moments + 1, STRIDE):
        place = Place(tmp_path / str(moment), plan)
        assert not place.session(die_at=moment)
        if moment % 3 == 0 and not (place.data / "steps.txt").exists():
            twice += not place.session(die_at=moment)
        assert place.session()
        assert content(place.events()) == content(reference.events()), f"killed at {moment} of {moments}"
        assert (place.steps_done() - reference.steps_done()).total() <= 2
    assert twice > 1, "making folder and ledger must have several moments"


def test_resuming_what_is_finished_changes_nothing(undisturbed):
    place, _ = undisturbed
    before = content(place.events())
    finish = resume_sweep(place.folder, driver="inline")
    assert (finish.left, finish.interrupted, finish.exit_code) == (0, False, 1)
    assert content(place.events()) == before
