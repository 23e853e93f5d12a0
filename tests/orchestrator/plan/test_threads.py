"""A trial has as many threads as CPU cores: one knob, `resources.cpus`."""

import pytest

from tests.orchestrator.plan.small import ARMS, full
from tests.support.specs.planned import plan


@pytest.mark.parametrize(("cpus", "threads"), [(0.5, 1), (1, 1), (1.5, 1), (2, 2), (5000, 1024)])
def test_threads_follow_the_cores(cpus, threads):
    made = plan(full(resources={"cpus": cpus}))
    assert {arm.settings["train"]["threads"] for arm in made.arms} == {threads}
    assert all(change.path != "train.threads" for arm in made.arms for change in arm.changes)


def test_one_core_leaves_ids_as_they_are():
    one, part = plan(full(arms=ARMS)), plan(full(arms=ARMS, resources={"cpus": 0.5}))
    assert [trial.trial_id for trial in one.trials] == [trial.trial_id for trial in part.trials]
