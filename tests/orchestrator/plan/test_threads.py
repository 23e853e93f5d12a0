"""The number of threads of a trial is `resources.cpus`."""

import pytest

from tests.orchestrator.plan.small_specs import ARMS, make_full_spec
from tests.support.specs.planned import plan


@pytest.mark.parametrize(("cpus", "threads"), [(0.5, 1), (1, 1), (1.5, 1), (2, 2), (5000, 1024)])
def test_threads_follow_the_cores(cpus, threads):
    sweep_plan = plan(make_full_spec(resources={"cpus": cpus}))
    assert {arm.settings["train"]["threads"] for arm in sweep_plan.arms} == {threads}
    assert all(change.path != "train.threads" for arm in sweep_plan.arms for change in arm.changes)


def test_number_of_cores_does_not_change_ids():
    one_core, half_core = (
        plan(make_full_spec(arms=ARMS)),
        plan(make_full_spec(arms=ARMS, resources={"cpus": 0.5})),
    )
    assert [trial.trial_id for trial in one_core.trials] == [trial.trial_id for trial in half_core.trials]
