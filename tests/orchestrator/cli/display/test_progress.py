"""How far a sweep is: counts from records, one line, one table, time left, all on a virtual clock."""

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
def test_duration(seconds, text):
    assert duration(seconds) == text


def sweep_plan(goal="max"):
    """Every phase and every way to end."""
    arms = [make_arm("sound"), make_arm("weak", fault="diverge", fault_at=4), make_arm("bad", fault="raise")]
    return make_plan(
        arms,
        trials_per_arm=4,
        stopper={"name": "asha", "grace_steps": 1, "reduction": 2},
        objectives=(Objective(metric="valid/score", goal=goal),),
        posthoc=({"model.shift": 0.5},),
    )


@pytest.mark.parametrize("goal", ["max", "min"])
def test_records_tell_what_the_conductor_knows(goal):
    """`status` and the live view agree at every moment at which a sweep can be looked at."""
    plan, log = sweep_plan(goal), MemoryLog()
    run_in_turn(record(plan, log))
    for cut in [0, *log.batches]:
        conductor = Conductor(plan)
        for event in log.written[:cut]:
            conductor.replay(event)
        seen = overview(plan, records(log.written[:cut], plan)).progress(is_locked=True)
        known = conductor.progress()
        ledger, live = (
            overview(plan, records(log.written[:cut], plan)).outlook(is_locked=False, now=0.0),
            conductor.outlook(),
        )
        assert ledger.phases == live.phases
        assert [replace(each, running=0) for each in seen] == [replace(each, running=0) for each in known]


def test_without_a_session_no_trial_counts_as_running():
    plan, log = sweep_plan(), MemoryLog()
    recorder = record(plan, log)
    for _ in range(2):
        assert recorder.ask() is not None
    found = records(log.written, plan)
    assert sum(each.running for each in overview(plan, found).progress(is_locked=True)) == 2
    assert sum(each.running for each in overview(plan, found).progress(is_locked=False)) == 0


def made(outcome, *, last=None, best=None, judged=None, number=0):
    return Record(
        f"t{number}", "synthetic", "arm-0", "search", number, 1, None, {}, {}, {}, outcome, "why",
        last, best, 0.0, 1.0, 1, {}, judged,
    )  # fmt: skip


def test_the_best_is_the_last_value_of_finished_search_trials():
    plan = make_plan(1)
    early, late = Measurement(1, 1.0, {"valid/score": 0.9}), Measurement(2, 2.0, {"valid/score": 0.5})
    without = Measurement(3, 3.0, {"train/loss": 1.0})
    found = [
        made(OutcomeKind.FINISHED, last=late, best=early, number=0),
        made(OutcomeKind.PRUNED, last=early, best=early, number=1),
        made(OutcomeKind.DIVERGED, number=2),
    ]
    assert overview(plan, found).progress(is_locked=False)[0].best == 0.5
    unfinished = made(OutcomeKind.FINISHED, last=without, best=early, judged=late, number=3)
    assert overview(plan, [*found[1:], unfinished]).progress(is_locked=False)[0].best == 0.5
    assert overview(plan, found[1:]).progress(is_locked=False)[0].best is None


ARMS = (Progress("[red]odd[/red]", 9, 1, 3, 2, 1, 0.12345, 75.0), Progress("plain", 4, 0, 0, 0, 0, None, 0.0))


def drawn(renderable):
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with console.file:
        console.print(renderable)
    return console.export_text()


def test_the_table_shows_names_as_they_are():
    text = drawn(table(ARMS, "valid/score"))
    assert re.search(r"│ \[red\]odd\[/red\] +│ +6/9 │ +1 │ +2 │ +1 │ +0\.123 │ 1m 15s │", text)
    assert re.search(r"│ plain +│ +0/4 │ +0 │ +0 │ +0 │ +- │ +0s │", text)
    assert "best: of valid/score" in text


def test_the_line_sums_over_arms():
    assert (
        line(ARMS, ", about 3s left") == "6/13 ended (1 of them failed), 1 running, 2 pruned, about 3s left"
    )


def snapshot(ended, planned=10, draining="", worked=0.0):
    work = PhaseWork("arm-0", "search", planned - ended, ended, worked, ended, worked)
    arm = Progress("arm-0", planned, 1, ended, 0, 0, None, worked)
    return Snapshot((arm,), 0.0, draining, Outlook((), (work,)))


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(progress, "print_line", lines.append)
    return lines


class TestPlainView:
    def test_lines_are_far_apart(self, said):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            for tick in range(101):
                view.show(snapshot(tick // 20))
                clock.now += 0.5
        assert [text.partition("]")[0] for text in said] == ["[0s", "[10s", "[20s", "[30s", "[40s", "[50s"]
        assert PLAIN_EVERY_S == 10

    def test_the_end_is_always_told_and_nothing_twice(self, said):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            view.show(snapshot(0))
            clock.now += 1
            view.show(snapshot(10))
            view.show(snapshot(10))
            clock.now += 60
            view.show(snapshot(10))
        assert said == [
            "[0s] 0/10 ended, 1 running, 0 pruned",
            "[1s] 10/10 ended, 1 running, 0 pruned",
        ]

    def test_time_left_is_not_told_before_work_is_seen_and_says_its_ground(self, said):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            clock.now += 500  # spent on data
            for worked, ended in ((40.0, 4), (50.0, 5), (60.0, 6)):  # the first: another session's
                view.show(snapshot(ended, worked=worked))
                clock.now += 10
        assert said == [
            "[0s] 4/10 ended, 1 running, 0 pruned",
            "[10s] 5/10 ended, 1 running, 0 pruned",
            "[20s] 6/10 ended, 1 running, 0 pruned, about 40s left (from 6 ended trials)",
        ]

    def test_the_budget_ends_it_before(self, said):
        clock = Clock()
        with View(make_plan(1, wall_clock_hours=40 / 3600), clock=clock) as view:
            for worked, ended in ((40.0, 4), (50.0, 5), (60.0, 6)):
                view.show(replace(snapshot(ended, worked=worked), held_open_s=worked - 40))
                clock.now += 10
        assert said[2].endswith("0 pruned, the budget of 0.0111111 h ends it in about 20s")

    def test_a_line_a_change_not_one_for_every_new_estimate(self, said):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            for worked in range(40, 100):
                view.show(snapshot(4, worked=float(worked)))
                clock.now += 10
        assert [text.partition("]")[0] for text in said] == ["[0s"]

    def test_a_log_in_which_nothing_ends_is_told_of_a_running_trial(self, said):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            for step in range(130):
                running = (RunningTrial("t", "arm-0", "search", 3, 1, 20_000, step * 100, step * 10.0),)
                view.show(replace(snapshot(4), outlook=Outlook(running)))
                clock.now += 10
        assert [text.partition("; ")[2] for text in said] == [
            "",
            "arm-0 search 3 is at step 6,000",
            "arm-0 search 3 is at step 12,000",
        ]

    def test_what_is_started_is_told(self, said):
        with View(make_plan(1), clock=Clock()) as view:
            view.show_starting("starting Ray")
        assert said == ["[0s] starting Ray"]

    def test_why_it_stops_is_told(self, said):
        with View(make_plan(1), clock=Clock()) as view:
            view.show(snapshot(4, draining="the budget is used up"))
        assert said == ["[0s] 4/10 ended, 1 running, 0 pruned; stopping: the budget is used up"]

    def test_data_are_told_once_they_are_there(self, said):
        with View(make_plan(1), clock=Clock()) as view:
            view.show_data("listops", "train", 0, 2)
            view.show_data("listops", "valid", 1, 2)
            view.show_data("listops", "valid", 2, 2)
        assert said == ["data: 2 splits of listops ready"]

    def test_long_builds_are_told_now_and_then(self, said):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            for ready in range(2):
                view.show_data("listops", "train", ready, 2)
                for done in range(1, 16):
                    clock.now += 1
                    view.show_build("trees", done * 1000, 15_000)
            view.show_data("listops", "train", 2, 2)
            view.show(snapshot(0))
        assert said == [
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
        """What a terminal has been sent, colours taken off."""
        with (tmp_path / "screen").open("w+") as file:
            console = Console(file=file, force_terminal=True, width=120, legacy_windows=False)
            monkeypatch.setattr(progress, "out", lambda: console)
            yield lambda: (file.flush(), re.sub(r"\x1b.*?[mlK]", "", (tmp_path / "screen").read_text()))[1]

    def test_table_with_hint_and_time_left(self, screen, said):
        clock = Clock()
        with View(make_plan(1), clock=clock) as view:
            for worked, ended in ((0.0, 0), (20.0, 2), (40.0, 4)):
                view.show(snapshot(ended, worked=worked))
                clock.now += 20
            view._live.refresh()
            shown = " ".join(screen().split())
            assert "about 60s left (from 4 ended trials); Ctrl-C stops cleanly, `haltsweep resume`" in shown
            assert re.search(r"│ arm-0 │ +4/10 │ +1 │", screen())

    def test_what_is_started_is_shown_with_the_arms(self, screen, said):
        with View(make_plan(1), clock=Clock()) as view:
            view.show_starting("starting Ray")
            view.show(snapshot(0))
            view.show_starting("starting Ray")
            view._live.refresh()
            assert re.search(r"starting Ray\n.*│ arm-0 │ +0/10 │", screen(), re.DOTALL)
        assert said == []
        assert said == []

    def test_the_hint_goes_once_it_was_followed(self, screen, said):
        with View(make_plan(1), clock=Clock()) as view:
            view.show(snapshot(2, draining="[asked] to stop"))
            view._live.refresh()
            assert "0 pruned; stopping: [asked] to stop" in screen()
            assert "Ctrl-C" not in screen()

    def test_data_while_they_are_built(self, screen, said):
        with View(make_plan(1), clock=Clock()) as view:
            view.show_data("listops", "valid", 1, 3)
            view._live.refresh()
            assert "data: listops/valid (2 of 3)" in screen()
            view.show_build("trees", 1000, 4000)
            view._live.refresh()
            assert "data: listops/valid (2 of 3): 25% of 4,000 trees" in screen()


def test_the_first_interrupt_is_answered(capsys, monkeypatch):
    shown = []
    monkeypatch.setattr(progress, "print_error", shown.append)
    with View(make_plan(1), clock=Clock()) as view:
        view.show_interrupt(SignalEffect.DRAIN)
    assert shown == ["stopping: running trials are saved at their next report; Ctrl-C again stops at once"]
