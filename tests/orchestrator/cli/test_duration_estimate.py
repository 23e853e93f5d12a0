"""The duration estimate of a plan comes from timed steps or from earlier sweeps on the same hardware."""

import re
from dataclasses import replace

import pytest

from orchestrator.cli import duration_estimate as hours
from orchestrator.cli.duration_estimate import estimate_duration
from orchestrator.execution.sweep.launch_folder import Setup, create_sweep_folder
from orchestrator.identity import SweepFolder
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import ArmEstimate
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.histories import measurement, trial_of
from trainables.protocol import Measurement

MACHINE = {"cpu": "a cpu", "cpu_count": 2, "devices": []}
TRIAL_DURATION_S = 600.0
"""Duration of every trial in seconds."""


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(hours, "machine", lambda: MACHINE)
    monkeypatch.setattr("orchestrator.execution.slots.local_resources", lambda _: {"CPU": 2.0, "GPU": 0.0})


def write_sweep(root, plan, outcomes=(OutcomeKind.FINISHED,) * 3, machine=MACHINE):
    """Write a sweep whose first trials have these outcomes, each after ten minutes and 4 steps."""
    folder = SweepFolder(root / plan.name)
    create_sweep_folder(plan, folder, "", machine, Setup(root / "data"))
    with Ledger.open(folder.ledger_url, plan.name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        for number, kind in enumerate(outcomes):
            trial = trial_of(plan, number)
            name, last = trial.trial_id, Measurement(4, 500.0, measurement(4).metrics)
            first_events = [
                log.params_event(0.0, trial),
                log.start_event(100.0, name, 1),
                log.measurement_event(500.0, name, last),
            ]
            ledger.append(
                [*first_events, log.end_event(100.0 + TRIAL_DURATION_S, name, Outcome(kind, "so"))], lease
            )
        ledger.release(lease)


def make_named_plan(name, *arms, **options):
    return replace(make_plan(list(arms), **options), name=name)


OLD_ARM = make_arm("old")


def test_estimate_uses_and_names_an_earlier_sweep_with_the_same_arm(tmp_path):
    write_sweep(tmp_path, make_named_plan("before", OLD_ARM))
    estimate = estimate_duration(make_named_plan("after", OLD_ARM, trials_per_arm=10), tmp_path)
    # 10 search and 2 confirm trials of 10 minutes, two at a time
    assert re.search(r" 1h 00m .* 2 .* 3 .* before ", estimate)


def test_estimate_prefers_an_earlier_run_of_the_same_sweep(tmp_path):
    write_sweep(tmp_path, make_named_plan("mine", OLD_ARM))
    write_sweep(tmp_path, make_named_plan("other", OLD_ARM), (OutcomeKind.FINISHED,) * 2)  # newer
    estimate = estimate_duration(make_named_plan("mine", OLD_ARM, trials_per_arm=10), tmp_path)
    assert re.search(r" 1h 00m .* 3 .* mine ", estimate)
    longer_plan = make_named_plan("mine", make_arm("longer", steps=12), trials_per_arm=10)
    assert " 3h 00m " in estimate_duration(longer_plan, tmp_path)


@pytest.mark.parametrize(
    ("machine", "outcomes", "reason"),
    [
        ({**MACHINE, "cpu_count": 64}, (OutcomeKind.FINISHED,), "another machine"),
        (MACHINE, (OutcomeKind.CRASHED, OutcomeKind.PRUNED), "nothing finished"),
    ],
)
def test_without_earlier_sweeps_there_is_no_estimate(tmp_path, machine, outcomes, reason):
    write_sweep(tmp_path, make_named_plan("before", OLD_ARM), outcomes, machine)
    assert estimate_duration(make_named_plan("after", OLD_ARM), tmp_path) == "", reason


def test_timed_steps_take_precedence(tmp_path):
    write_sweep(tmp_path, make_named_plan("before", OLD_ARM))
    arm_estimates = (ArmEstimate("old", {"search": 3, "confirm": 2, "posthoc": 7}, seconds_per_step=360.0),)
    estimate = estimate_duration(
        replace(make_named_plan("after", OLD_ARM), prices=arm_estimates), tmp_path
    )  # 5 trials of 4 steps of 6 minutes
    assert re.search("^Measured: .*1h 00m .* 2 ", estimate)
