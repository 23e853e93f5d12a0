"""Progress of a sweep: counts, line, table and remaining time on a virtual clock."""

import re
from dataclasses import replace

import pytest
from rich.console import Console

from orchestrator.cli.display import progress
from orchestrator.cli.display.progress import PLAIN_EVERY_S, View, duration, line, table
from orchestrator.conductor.conductor import Conductor
from orchestrator.conductor.messages import Progress
from orchestrator.conductor.outlook import Outlook, PhaseWork, RunningTrial
from orchestrator.execution.live_view import Snapshot
from orchestrator.execution.signals import SignalEffect
from orchestrator.ledger.fold import records
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind, Record
from tests.support.processes.logs import Clock, MemoryLog, record
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import run_in_turn
from tests.support.sweeps.overviews import overview
from trainables.protocol import Measurement


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (42.4, "42s"),
        (59.5, "1m 00s"),
        (60, "1m 00s"),
        (200, "3m 20s"),
        (3599.6, "1h 00m"),
        (7500, "2h 05m"),
        (360000, "100h 00m"),
    ],
)
def test_duration_formats_seconds(seconds, text):
    assert duration(seconds) == text


def sweep_plan(goal="max"):
    """Return a plan with every phase and every kind of end."""
    arms = [make_arm("sound"), make_arm("weak", fault="diverge", fault_at=4), make_arm("bad", fault="raise")]
    return make_plan(
        arms,
        trials_per_arm=4,
        stopper={"name": "asha", "grace_steps": 1, "reduction": 2},
        objectives=(Objective(metric="valid/score", goal=goal),),
        posthoc=({"model.shift": 0.5},),
    )


@pytest.mark.parametrize("goal", ["max", "min"])
def test_records_and_conductor_report_the_same_progress(goal):
    """`status` and the live view agree after every transaction."""
    plan, log = sweep_plan(goal), MemoryLog()
    run_in_turn(record(plan, log))
    for num_events in [0, *log.batches]:
        conductor = Conductor(plan)
        for event in log.written[:num_events]:
            conductor.replay(event)
        recorded_progress = overview(plan, records(log.written[:num_events], plan)).progress(is_locked=True)
        conductor_progress = conductor.progress()
        ledger_outlook, live_outlook = (
            overview(plan, records(log.written[:num_events], plan)).outlook(is_locked=False, now=0.0),
            conductor.outlook(),
        )
        assert ledger_outlook.phases == live_outlook.phases
        assert [replace(summary, running=0) for summary in recorded_progress] == [
            replace(summary, running=0) for summary in conductor_progress
        ]


def test_without_a_session_no_trial_counts_as_running():
    plan, log = sweep_plan(), MemoryLog()
    recorder = record(plan, log)
    for _ in range(2):
        assert recorder.ask() is not None
    trial_records = records(log.written, plan)
    assert sum(summary.running for summary in overview(plan, trial_records).progress(is_locked=True)) == 2
    assert sum(summary.running for summary in overview(plan, trial_records).progress(is_locked=False)) == 0


def make_record(outcome, *, last=None, best=None, judged=None, number=0):
    return Record(
        f"t{number}", "synthetic", "arm-0", "search", number, 1, None, {}, {}, {}, outcome, "why",
        last, best, 0.0, 1.0, 1, {}, judged,
    )  # fmt: skip


def test_best_value_is_the_last_value_of_finished_search_trials():
    plan = make_plan(1)
    early_measurement, late_measurement = (
        Measurement(1, 1.0, {"valid/score": 0.9}),
        Measurement(2, 2.0, {"valid/score": 0.5}),
    )
    without_objective = Measurement(3, 3.0, {"train/loss": 1.0})
    trial_records = [
        make_record(OutcomeKind.FINISHED, last=late_measurement, best=early_measurement, number=0),
        make_record(OutcomeKind.PRUNED, last=early_measurement, best=early_measurement, number=1),
        make_record(OutcomeKind.DIVERGED, number=2),
    ]
    assert overview(plan, trial_records).progress(is_locked=False)[0].best == 0.5
    judged_record = make_record(
        OutcomeKind.FINISHED,
        last=without_objective,
        best=early_measurement,
        judged=late_measurement,
        number=3,
    )
    assert overview(plan, [*trial_records[1:], judged_record]).progress(is_locked=False)[0].best == 0.5
    assert overview(plan, trial_records[1:]).progress(is_locked=False)[0].best is None


ARMS = (Progress("[red]odd[/red]", 9, 1, 3, 2, 1, 0.12345, 75.0), Progress("plain", 4, 0, 0, 0, 0, None, 0.0))


def render_text(renderable):
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with console.file:
        console.print(renderable)
    return console.export_text()


def test_table_shows_names_without_markup():
    text = render_text(table(ARMS, "valid/score"))
    assert re.search(r"│ \[red\]odd\[/red\] +│ +6/9 │ +1 │ +2 │ +1 │ +0\.123 │ 1m 15s │", text)
    assert re.search(r"│ plain +│ +0/4 │ +0 │ +0 │ +0 │ +- │ +0s │", text)
    assert "best: of valid/score" in text


def test_line_sums_over_arms():
    assert (
        line(ARMS, ", about 3s left") == "6/13 ended (1 of them failed), 1 running, 2 pruned, about 3s left"
    )


def snapshot(num_ended, num_planned=10, draining="", worked=0.0):
    work = PhaseWork("arm-0", "search", num_planned - num_ended, num_ended, worked, num_ended, worked)
    arm = Progress("arm-0", num_planned, 1, num_ended, 0, 0, None, worked)
    return Snapshot((arm,), 0.0, draining, Outlook((), (work,)))


@pytest.fixture
def printed_lines(monkeypatch):
    lines = []
    monkeypatch.setattr(progress, "print_line", lines.append)
    return lines


class TestPlainView:
    def test_lines_are_ten_seconds_apart(self, printed_lines):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            for tick in range(101):
                view.show(snapshot(tick // 20))
                clock.now += 0.5
        assert [text.partition("]")[0] for text in printed_lines] == [
            "[0s",
            "[10s",
            "[20s",
            "[30s",
            "[40s",
            "[50s",
        ]
        assert PLAIN_EVERY_S == 10

    def test_end_is_always_printed_and_no_line_twice(self, printed_lines):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            view.show(snapshot(0))
            clock.now += 1
            view.show(snapshot(10))
            view.show(snapshot(10))
            clock.now += 60
            view.show(snapshot(10))
        assert printed_lines == [
            "[0s] 0/10 ended, 1 running, 0 pruned",
            "[1s] 10/10 ended, 1 running, 0 pruned",
        ]

    def test_remaining_time_requires_observed_work_and_names_its_basis(self, printed_lines):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            clock.now += 500  # for the data
            for worked, num_ended in (
                (40.0, 4),
                (50.0, 5),
                (60.0, 6),
            ):  # an earlier session ended the first four
                view.show(snapshot(num_ended, worked=worked))
                clock.now += 10
        assert printed_lines == [
            "[0s] 4/10 ended, 1 running, 0 pruned",
            "[10s] 5/10 ended, 1 running, 0 pruned",
            "[20s] 6/10 ended, 1 running, 0 pruned, about 40s left (from 6 ended trials)",
        ]

    def test_remaining_time_is_limited_by_the_budget(self, printed_lines):
        clock = Clock()
        with View(make_plan(1, wall_clock_hours=40 / 3600), clock=clock) as view:
            for worked, num_ended in ((40.0, 4), (50.0, 5), (60.0, 6)):
                view.show(replace(snapshot(num_ended, worked=worked), open_seconds=worked - 40))
                clock.now += 10
        assert printed_lines[2].endswith("0 pruned, the budget of 0.0111111 h ends it in about 20s")

    def test_changed_estimate_prints_no_line(self, printed_lines):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            for worked in range(40, 100):
                view.show(snapshot(4, worked=float(worked)))
                clock.now += 10
        assert [text.partition("]")[0] for text in printed_lines] == ["[0s"]

    def test_long_trial_is_reported_with_its_step(self, printed_lines):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            for step in range(130):
                running = (RunningTrial("t", "arm-0", "search", 3, 1, 20_000, step * 100, step * 10.0),)
                view.show(replace(snapshot(4), outlook=Outlook(running)))
                clock.now += 10
        assert [text.partition("; ")[2] for text in printed_lines] == [
            "",
            "arm-0 search 3 is at step 6,000",
            "arm-0 search 3 is at step 12,000",
        ]

    def test_start_message_is_printed(self, printed_lines):
        with View(make_plan(1), clock=Clock()) as view:
            view.show_starting("starting Ray")
        assert printed_lines == ["[0s] starting Ray"]

    def test_reason_of_a_stop_is_printed(self, printed_lines):
        with View(make_plan(1), clock=Clock()) as view:
            view.show(snapshot(4, draining="the budget is used up"))
        assert printed_lines == ["[0s] 4/10 ended, 1 running, 0 pruned; stopping: the budget is used up"]

    def test_data_are_reported_after_their_build(self, printed_lines):
        with View(make_plan(1), clock=Clock()) as view:
            view.show_data("listops", "train", 0, 2)
            view.show_data("listops", "valid", 1, 2)
            view.show_data("listops", "valid", 2, 2)
        assert printed_lines == ["data: 2 splits of listops ready"]

    def test_long_builds_are_reported_every_ten_seconds(self, printed_lines):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            for ready in range(2):
                view.show_data("listops", "train", ready, 2)
                for num_built in range(1, 16):
                    clock.now += 1
                    view.show_build("trees", num_built * 1000, 15_000)
            view.show_data("listops", "train", 2, 2)
            view.show(snapshot(0))
        assert printed_lines == [
            "[2s] data: listops/train (1 of 2): 13% of 15,000 trees",
            "[12s] data: listops/train (1 of 2): 80% of 15,000 trees",
            "[17s] data: listops/train (2 of 2): 13% of 15,000 trees",
            "[27s] data: listops/train (2 of 2): 80% of 15,000 trees",
            "data: 2 splits of listops ready",
            "[0s] 0/10 ended, 1 running, 0 pruned",
        ]


class TestLiveView:
    @pytest.fixture
    def screen(self, monkeypatch, tmp_path):
        """Return a function that reads the terminal output without colours."""
        with (tmp_path / "screen").open("w+") as file:
            console = Console(file=file, force_terminal=True, width=120, legacy_windows=False)
            monkeypatch.setattr(progress, "out", lambda: console)
            yield lambda: (file.flush(), re.sub(r"\x1b.*?[mlK]", "", (tmp_path / "screen").read_text()))[1]

    def test_table_has_a_hint_and_the_remaining_time(self, screen, printed_lines):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            for worked, num_ended in ((0.0, 0), (20.0, 2), (40.0, 4)):
                view.show(snapshot(num_ended, worked=worked))
                clock.now += 20
            view._live.refresh()
            text = " ".join(screen().split())
            assert "about 60s left (from 4 ended trials); Ctrl-C stops cleanly, `haltsweep resume`" in text
            assert re.search(r"│ arm-0 │ +4/10 │ +1 │", screen())

    def test_start_message_is_shown_above_the_table(self, screen, printed_lines):
        with View(make_plan(1), clock=Clock()) as view:
            view.show_starting("starting Ray")
            view.show(snapshot(0))
            view.show_starting("starting Ray")
            view._live.refresh()
            assert re.search(r"starting Ray\n.*│ arm-0 │ +0/10 │", screen(), re.DOTALL)
        assert printed_lines == []
        assert printed_lines == []

    def test_hint_disappears_after_an_interrupt(self, screen, printed_lines):
        with View(make_plan(1), clock=Clock()) as view:
            view.show(snapshot(2, draining="[asked] to stop"))
            view._live.refresh()
            assert "0 pruned; stopping: [asked] to stop" in screen()
            assert "Ctrl-C" not in screen()

    def test_data_builds_are_shown(self, screen, printed_lines):
        with View(make_plan(1), clock=Clock()) as view:
            view.show_data("listops", "valid", 1, 3)
            view._live.refresh()
            assert "data: listops/valid (2 of 3)" in screen()
            view.show_build("trees", 1000, 4000)
            view._live.refresh()
            assert "data: listops/valid (2 of 3): 25% of 4,000 trees" in screen()


def test_first_interrupt_prints_a_message(capsys, monkeypatch):
    messages = []
    monkeypatch.setattr(progress, "print_error", messages.append)
    with View(make_plan(1), clock=Clock()) as view:
        view.show_interrupt(SignalEffect.DRAIN)
    assert messages == ["stopping: running trials are saved at their next report; Ctrl-C again stops at once"]
