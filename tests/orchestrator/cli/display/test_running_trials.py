"""The table of running trials: names in narrow columns, estimates, pace, and watching a sweep."""

from io import StringIO

from rich.console import Console, Group

from orchestrator.cli.display import watch_display as watching
from orchestrator.cli.display.progress import progress_tables
from orchestrator.cli.display.running_trials import WorkRate
from orchestrator.conductor.messages import Progress
from orchestrator.conductor.outlook import RemainingWork, RunningTrial
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import measurement, trial_of
from tests.support.sweeps.launched import launched

LONG_NAME = "minus-global-halt-and-transition[model.max_layers=20,train.lr=0.001]"


def test_narrow_table_shows_full_numbers():
    trial = RunningTrial(
        "t3", LONG_NAME, "confirm", 3, 1, 20_000, 12_000, 300.0, "valid/accuracy", 0.7123, silent_s=720.0
    )
    arm = Progress(LONG_NAME, 24, 2, 12, 6, 1, 0.71234, 14_000.0)
    console = Console(width=80, record=True, file=StringIO())
    console.print(Group(*progress_tables((arm,), "valid/accuracy", RemainingWork((trial,)))))
    text = console.export_text()
    for number in ("19/24", "0.712", "3h 53m", "12,000/20,000", "40", "0.7123", "3m", "12m"):
        assert f" {number} " in text
    assert max(map(len, text.splitlines())) <= 80


def test_pace_counts_observed_work_and_is_limited_by_running_trials():
    pace = WorkRate()
    assert pace.speed(100.0, 0.0, 2) is None  # work of an earlier session
    assert pace.speed(100.0, 60.0, 2) is None  # loading
    assert pace.speed(110.0, 70.0, 2) is None  # the duration of the first work is unknown
    assert pace.speed(125.0, 80.0, 2) == 1.5
    assert pace.speed(170.0, 90.0, 2) == 2.0
    assert pace.speed(170.0, 90.0, 1) == 2.0, "a gap between two trials changes nothing"


PLAN = make_plan(1, trials_per_arm=6, seeds=())


def test_watch_ends_with_the_session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep = launched(tmp_path, PLAN)
    lines = []
    monkeypatch.setattr("orchestrator.cli.display.progress.print_line", lines.append)
    with Ledger.open(sweep.ledger_url, "synthetic") as ledger:
        lease = ledger.claim(Holder.current())

        def end_next_trial(_):
            number = len(lines) - 1
            if number == 2:
                ledger.release(lease)
                return
            trial = trial_of(PLAN, number)
            ledger.append(
                [
                    log.params_event(1.0, trial),
                    log.start_event(2.0, trial.trial_id, 1),
                    log.measurement_event(3.0, trial.trial_id, measurement(1)),
                    log.end_event(4.0, trial.trial_id, Outcome(OutcomeKind.FINISHED, "done")),
                ],
                lease,
            )
            monkeypatch.setattr("orchestrator.cli.display.progress.LINE_INTERVAL_S", 0.0)
            for constant in ("MIN_INTERVAL_S", "INTERVAL_FACTOR"):
                monkeypatch.setattr(f"orchestrator.execution.live_view.{constant}", 0.0)

        watching.watch_sweep("synthetic", sweep.root.parent, sleep=end_next_trial)
    assert [line.partition("] ")[2] for line in lines] == [
        f"{num_ended}/6 ended, 0 running, 0 pruned" for num_ended in range(3)
    ]
