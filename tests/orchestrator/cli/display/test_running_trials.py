"""Running trials as a table, names in narrow columns, estimates, pace, and a sweep that is watched."""

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

LONG = "minus-global-halt-and-transition[model.max_layers=20,train.lr=0.001]"


def drawn(width, *parts):
    with open("/dev/null", "w") as nowhere:  # noqa: PTH123
        console = Console(width=width, record=True, file=nowhere)
        console.print(Group(*parts))
        return console.export_text()


def trial(number=0, step=0, value=None, arm=LONG, metric="valid/accuracy"):
    return RunningTrial(
        f"t{number}", arm, "confirm", number, 1, 20_000, step, step / 40, metric if value else "", value
    )


@pytest.mark.parametrize("width", [80, 200])
def test_numbers_are_whole_and_names_break_at_their_parts(width):
    arms = (Progress(LONG, 24, 2, 12, 6, 1, 0.71234, 14_000.0), Progress("b", 4, 0, 0, 0, 0, None, 0.0))
    seen = Outlook((trial(3, 12_000, 0.7123), trial(4, arm="b")))
    text = drawn(width, *tables(arms, "valid/accuracy", seen))
    assert "…" not in text
    for whole in ("19/24", "0.712", "3h 53m", "12,000/20,000", "40", "0.7123", "starting", "3m"):
        assert f" {whole} " in text
    assert max(map(len, text.splitlines())) <= width
    assert "minus-global-halt-" in text
    assert (LONG in text) == (width == 200)


def test_a_name_keeps_its_parts_and_all_its_characters():
    lines = list(Name(LONG).lines(20))
    assert "".join(lines) == LONG
    assert lines[0] == "minus-global-halt-"
    assert list(Name("x" * 25).lines(10)) == ["x" * 10, "x" * 10, "x" * 5]


@pytest.mark.parametrize(("seconds", "shown"), [(None, False), (599.0, False), (720.0, True)])
def test_a_trial_without_reports_for_ten_minutes_is_marked(seconds, shown):
    text = drawn(120, running_table(Outlook((replace(trial(arm="a"), silent_s=seconds),))))
    assert ("a confirm 0, silent for 12m" in text) == shown
    assert ("silent" in text) == shown


def test_different_metrics_are_named_and_a_common_one_is_a_header():
    one, other = trial(1, 500, 0.5, "a"), trial(2, 500, 0.25, "a", "train/loss")
    assert "valid/accuracy 0.5" in drawn(120, running_table(Outlook((one, other))))
    text = drawn(120, running_table(Outlook((one, one))))
    assert "valid/accuracy" in text.splitlines()[1]
    assert text.count("valid/accuracy") == 1


def test_only_the_first_running_trials_are_listed():
    text = drawn(120, running_table(Outlook(tuple(trial(each) for each in range(SHOWN + 3)))))
    assert "... and 3 more" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "10s"), (44, "40s"), (89, "90s"), (91, "2m"), (3500, "58m"), (3590, "1h 00m"), (7900, "2h 10m"),
     (36_000, "10h"), (172_799, "48h"), (180_000, "2 days")],
)  # fmt: skip
def test_roughly(seconds, text):
    assert format_rough_seconds(seconds) == text


def test_a_pace_begins_with_the_first_work_seen_and_is_bounded_by_what_runs():
    pace = WorkRate()
    assert pace.speed(100.0, 0.0, 2) is None  # of an earlier session
    assert pace.speed(100.0, 60.0, 2) is None  # loading
    assert pace.speed(110.0, 70.0, 2) is None  # the first report: what it took is not known
    assert pace.speed(125.0, 80.0, 2) == 1.5
    assert pace.speed(170.0, 90.0, 2) == 2.0


PLAN = make_plan(1, trials_per_arm=6, seeds=())


def test_a_sweep_is_watched_until_its_session_ends(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep = launched(tmp_path, PLAN)
    said = []
    monkeypatch.setattr("orchestrator.cli.display.progress.print_line", said.append)
    with Ledger.open(sweep.ledger_url, "synthetic") as ledger:
        lease = ledger.claim(Holder.current())

        def more(_):
            number = len(said) - 1
            if number == 2:
                ledger.release(lease)
                return
            asked = trial_of(PLAN, number)
            ledger.append(
                [
                    log.asked(1.0, asked),
                    log.started(2.0, asked.trial_id, 1),
                    log.measured(3.0, asked.trial_id, measurement(1)),
                    log.ended(4.0, asked.trial_id, Outcome(OutcomeKind.FINISHED, "done")),
                ],
                lease,
            )
            monkeypatch.setattr("orchestrator.cli.display.progress.PLAIN_EVERY_S", 0.0)
            for least in ("VIEW_S", "LOOK_SHARE"):
                monkeypatch.setattr(f"orchestrator.execution.live_view.{least}", 0.0)

        watching.watch_sweep("synthetic", sweep.root.parent, sleep=more)
    assert [line.partition("] ")[2] for line in said] == [
        f"{ended}/6 ended, 0 running, 0 pruned" for ended in range(3)
    ]
