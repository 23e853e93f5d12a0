"""The hours that a plan will take: from timed steps, from sweeps on this kind of machine, or not said."""

from dataclasses import replace

import pytest

from orchestrator.cli import duration_estimate as hours
from orchestrator.cli.duration_estimate import estimate_duration
from orchestrator.execution.sweep.launch_folder import Setup, publish
from orchestrator.identity import SweepFolder
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import ArmEstimate
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.histories import measurement, trial_of
from trainables.protocol import Measurement

HERE = {"cpu": "a cpu", "cpu_count": 2, "devices": []}
TOOK_S = 600.0
"""Of every trial that ran."""


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(hours, "machine", lambda: HERE)
    monkeypatch.setattr("orchestrator.execution.slots.local_resources", lambda _: {"CPU": 2.0, "GPU": 0.0})


def ran(root, plan, kinds=(OutcomeKind.FINISHED,) * 3, machine=HERE):
    """A sweep whose first trials ended so, each after ten minutes and 4 steps."""
    folder = SweepFolder(root / plan.name)
    publish(plan, folder, "", machine, Setup(root / "data"))
    with Ledger.open(folder.ledger_url, plan.name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        for number, kind in enumerate(kinds):
            trial = trial_of(plan, number)
            name, last = trial.trial_id, Measurement(4, 500.0, measurement(4).metrics)
            begun = [log.asked(0.0, trial), log.started(100.0, name, 1), log.measured(500.0, name, last)]
            ledger.append([*begun, log.ended(100.0 + TOOK_S, name, Outcome(kind, "so"))], lease)
        ledger.release(lease)


def named(name, *arms, **more):
    return replace(make_plan(list(arms), **more), name=name)


OLD, OTHER = make_arm("old"), make_arm("other", fault_at=9)


def test_the_estimate_uses_and_names_an_earlier_sweep_with_the_same_arm(tmp_path):
    ran(tmp_path, named("before", OLD))
    shown = estimate_duration(named("after", OLD, trials_per_arm=10), tmp_path)
    assert shown == (  # 10 search and 2 confirm trials of 10 minutes, two at a time
        "About 1h 00m on this machine, 2 trials at a time, from the durations of 3 trials of such arms "
        "in before on this kind of machine."
    )


def test_the_estimate_prefers_an_earlier_run_of_the_same_sweep(tmp_path):
    ran(tmp_path, named("mine", OLD))
    ran(tmp_path, named("other", OLD), (OutcomeKind.FINISHED,) * 2)  # newer
    shown = estimate_duration(named("mine", OLD, trials_per_arm=10), tmp_path)
    assert shown.startswith("About 1h 00m on this machine")
    assert "the durations of 3 trials of such arms in mine on this kind" in shown
    edited = named("mine", make_arm("longer", steps=12), trials_per_arm=10)
    assert estimate_duration(edited, tmp_path).startswith("About 3h 00m ")


def test_an_arm_without_earlier_runs_is_named_and_excluded(tmp_path):
    ran(tmp_path, named("before", OLD))
    shown = estimate_duration(named("after", OLD, OTHER, trials_per_arm=10), tmp_path)
    assert shown.startswith("About 1h 00m on this machine")
    assert shown.endswith(" Without arms that no earlier sweep has run: other.")


def test_the_estimate_grows_with_the_number_of_steps(tmp_path):
    ran(tmp_path, named("before", OLD))
    longer = make_arm("longer", steps=12)
    assert estimate_duration(named("after", longer, trials_per_arm=10), tmp_path).startswith("About 3h 00m ")


@pytest.mark.parametrize(
    ("machine", "kinds", "why"),
    [
        ({**HERE, "cpu_count": 64}, (OutcomeKind.FINISHED,), "another machine"),
        ({}, (OutcomeKind.FINISHED,), "a machine that nobody wrote down"),
        (HERE, (OutcomeKind.CRASHED, OutcomeKind.PRUNED), "nothing finished"),
        (HERE, (), "nothing ran"),
    ],
)
def test_without_earlier_sweeps_there_is_no_estimate(tmp_path, machine, kinds, why):
    ran(tmp_path, named("before", OLD), kinds, machine)
    assert estimate_duration(named("after", OLD), tmp_path) == "", why


def test_other_configs_and_damaged_sweeps_are_ignored(tmp_path):
    ran(tmp_path, named("before", OLD))
    ran(tmp_path, named("broken", OTHER))
    (tmp_path / "broken" / "plan.json").write_text("damaged")
    assert estimate_duration(named("after", OTHER), tmp_path) == ""


def test_timed_steps_take_precedence(tmp_path):
    ran(tmp_path, named("before", OLD))
    prices = (ArmEstimate("old", {"search": 3, "confirm": 2, "posthoc": 7}, seconds_per_step=360.0),)
    shown = estimate_duration(
        replace(named("after", OLD), prices=prices), tmp_path
    )  # 5 trials of 4 steps of 6 minutes
    assert shown.startswith("About 1h 00m on this machine, 2 trials at a time, from timed steps")
