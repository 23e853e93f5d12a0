"""Progress of a sweep: counts, line, table and remaining time on a virtual clock."""

import re
from dataclasses import replace

import pytest
from rich.console import Console

from orchestrator.cli.display import progress
from orchestrator.cli.display.progress import View, short_duration
from orchestrator.conductor.conductor import Conductor
from orchestrator.conductor.messages import Progress
from orchestrator.conductor.outlook import PhaseWork, RemainingWork
from orchestrator.execution.live_view import Snapshot
from orchestrator.ledger.fold import records
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind, Record
from tests.support.processes.logs import Clock, MemoryLog, record
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import run_in_turn
from tests.support.sweeps.overviews import overview
from trainables.protocol import Measurement


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.5, "1m 00s"), (200, "3m 20s"), (3599.6, "1h 00m"), (7500, "2h 05m")]
)
def test_duration_formats_seconds(seconds, text):
    assert short_duration(seconds) == text


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
        recorded = overview(plan, records(log.written[:num_events], plan))
        assert recorded.outlook(is_locked=False, now=0.0).phases == conductor.outlook().phases
        assert [replace(summary, running=0) for summary in recorded.progress(is_locked=True)] == [
            replace(summary, running=0) for summary in conductor.progress()
        ]


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


def snapshot(num_ended, num_planned=10, draining="", worked=0.0):
    work = PhaseWork("arm-0", "search", num_planned - num_ended, num_ended, worked, num_ended, worked)
    arm = Progress("arm-0", num_planned, 1, num_ended, 0, 0, None, worked)
    return Snapshot((arm,), 0.0, draining, RemainingWork((), (work,)))


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
            f"[{10 * number}s" for number in range(6)
        ]

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
            assert re.search("60s left .* 4 .*`haltsweep resume`", text)
            assert re.search(r"│ arm-0 │ +4/10 │ +1 │", screen())
