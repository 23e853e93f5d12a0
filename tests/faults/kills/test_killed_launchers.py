"""After a kill -9 of the launching process at any moment, a resumed sweep loses and repeats nothing."""

import random

import pytest

from orchestrator.spec.section import Resources
from tests.faults.kills.chaos import KillableSweep, check_log
from tests.support.processes.logs import content
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan

KILLS = 5
"""Number of kills of each sweep."""
STRIDE = 5
"""Distance between two tested moments; 1 tests every moment."""
ASHA = {"name": "asha", "grace_steps": 1, "reduction": 2}


def make_sweep_plan():
    """Make a plan with every phase, a learning sampler, an early stopper and a failing trial."""
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


def check_against(sweep, undisturbed, kills):
    """Assert that the killed sweep recorded what the undisturbed sweep recorded, at little extra work."""
    check_log(sweep.events(), sweep.plan)
    assert content(sweep.events()) == content(undisturbed.events())
    assert set(sweep.count_steps()) == set(undisturbed.count_steps())
    # A checkpoint follows every report, so a kill costs at most the step during which it happens.
    assert (sweep.count_steps() - undisturbed.count_steps()).total() <= kills


def test_sweep_survives_repeated_kills_at_random_moments(tmp_path):
    reference = KillableSweep(tmp_path / "undisturbed", make_sweep_plan())
    moments = reference.count_moments()
    stream = random.Random(0)
    sweep = KillableSweep(tmp_path / "killed", make_sweep_plan())
    for killed in range(KILLS):
        died = not sweep.run_session(die_at=stream.randint(1, moments // KILLS))
        assert died, f"the sweep must not be over after {killed} kills"
    assert sweep.run_session()
    check_against(sweep, reference, KILLS)


@pytest.mark.slow
def test_trial_survives_a_kill_at_every_write(tmp_path):
    plan = make_plan(
        [make_arm("one", steps=2, tally=True)],
        trials_per_arm=1,
        seeds=(),
        resources=Resources(checkpoint_seconds=AT_EVERY_REPORT_S),
    )
    reference = KillableSweep(tmp_path / "undisturbed", plan)
    moments = reference.count_moments()
    second_kills = 0
    for moment in range(1, moments + 1, STRIDE):
        sweep = KillableSweep(tmp_path / str(moment), plan)
        assert not sweep.run_session(die_at=moment)
        if moment % 2 == 0 and not (sweep.data / "steps.txt").exists():
            second_kills += not sweep.run_session(die_at=moment)
        assert sweep.run_session()
        assert content(sweep.events()) == content(reference.events()), f"killed at {moment} of {moments}"
        assert (sweep.count_steps() - reference.count_steps()).total() <= 2
    assert second_kills, "a launch must be killed twice before its first step"
