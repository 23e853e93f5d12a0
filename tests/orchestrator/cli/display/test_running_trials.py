"""The table of running trials: names in narrow columns, estimates, pace, and watching a sweep."""

from dataclasses import replace

import pytest
from rich.console import Console, Group

from orchestrator.cli.display import watch_display as watching
from orchestrator.cli.display.console import Name
from orchestrator.cli.display.progress import tables
from orchestrator.cli.display.running_trials import SHOWN, WorkRate, format_rough_seconds, running_table
from orchestrator.conductor.messages import Progress
from orchestrator.conductor.outlook import Outlook, RunningTrial
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import measurement, trial_of
from tests.support.sweeps.launched import launched

LONG_NAME = "minus-global-halt-and-transition[model.max_layers=20,train.lr=0.001]"


def render_text(width, *tables):
    with open("/dev/null", "w") as null_file:  # noqa: PTH123
        console = Console(width=width, record=True, file=null_file)
        console.print(Group(*tables))
        return console.export_text()


def running_trial(number=0, step=0, value=None, arm=LONG_NAME, metric="valid/accuracy"):
    return RunningTrial(
        f"t{number}", arm, "confirm", number, 1, 20_000, step, step / 40, metric if value else "", value
    )


@pytest.mark.parametrize("width", [80, 200])
def test_narrow_table_shows_full_numbers_and_wraps_names_at_hyphens(width):
    arms = (Progress(LONG_NAME, 24, 2, 12, 6, 1, 0.71234, 14_000.0), Progress("b", 4, 0, 0, 0, 0, None, 0.0))
    outlook = Outlook((running_trial(3, 12_000, 0.7123), running_trial(4, arm="b")))
    text = render_text(width, *tables(arms, "valid/accuracy", outlook))
    assert "…" not in text
    for number in ("19/24", "0.712", "3h 53m", "12,000/20,000", "40", "0.7123", "starting", "3m"):
        assert f" {number} " in text
    assert max(map(len, text.splitlines())) <= width
    assert "minus-global-halt-" in text
    assert (LONG_NAME in text) == (width == 200)


def test_wrapped_name_keeps_all_characters():
    lines = list(Name(LONG_NAME).lines(20))
    assert "".join(lines) == LONG_NAME
    assert lines[0] == "minus-global-halt-"
    assert list(Name("x" * 25).lines(10)) == ["x" * 10, "x" * 10, "x" * 5]


@pytest.mark.parametrize(("seconds", "is_marked"), [(None, False), (599.0, False), (720.0, True)])
def test_trial_without_reports_for_ten_minutes_is_marked(seconds, is_marked):
    text = render_text(120, running_table(Outlook((replace(running_trial(arm="a"), silent_s=seconds),))))
    assert ("a confirm 0, silent for 12m" in text) == is_marked
    assert ("silent" in text) == is_marked


def test_common_metric_is_a_column_header():
    accuracy_trial, loss_trial = (
        running_trial(1, 500, 0.5, "a"),
        running_trial(2, 500, 0.25, "a", "train/loss"),
    )
    assert "valid/accuracy 0.5" in render_text(120, running_table(Outlook((accuracy_trial, loss_trial))))
    text = render_text(120, running_table(Outlook((accuracy_trial, accuracy_trial))))
    assert "valid/accuracy" in text.splitlines()[1]
    assert text.count("valid/accuracy") == 1


def test_only_the_first_running_trials_are_listed():
    text = render_text(
        120, running_table(Outlook(tuple(running_trial(number) for number in range(SHOWN + 3))))
    )
    assert "... and 3 more" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "10s"), (44, "40s"), (89, "90s"), (91, "2m"), (3500, "58m"), (3590, "1h 00m"), (7900, "2h 10m"),
     (36_000, "10h"), (172_799, "48h"), (180_000, "2 days")],
)  # fmt: skip
def test_rounded_duration(seconds, text):
    assert format_rough_seconds(seconds) == text


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
                    log.trial_assigned(1.0, trial),
                    log.started(2.0, trial.trial_id, 1),
                    log.measured(3.0, trial.trial_id, measurement(1)),
                    log.ended(4.0, trial.trial_id, Outcome(OutcomeKind.FINISHED, "done")),
                ],
                lease,
            )
            monkeypatch.setattr("orchestrator.cli.display.progress.PLAIN_EVERY_S", 0.0)
            for constant in ("VIEW_S", "LOOK_SHARE"):
                monkeypatch.setattr(f"orchestrator.execution.live_view.{constant}", 0.0)

        watching.watch_sweep("synthetic", sweep.root.parent, sleep=end_next_trial)
    assert [line.partition("] ")[2] for line in lines] == [
        f"{num_ended}/6 ended, 0 running, 0 pruned" for num_ended in range(3)
    ]
