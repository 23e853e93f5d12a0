"""Seeds of an arm that share a process: each is what it is alone, whatever becomes of the others."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from orchestrator.drivers.inline import INTERRUPTED, run_inline
from orchestrator.drivers.launch import run_sweep
from orchestrator.drivers.launch_folder import Setup
from orchestrator.drivers.recorder import Recorder
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.trials import OutcomeKind
from tests.support import packed
from tests.support.logs import MemoryLog, record
from trainables.training import NONDETERMINISTIC, stacked_step

Curves = dict[int, dict[int, dict[str, float]]]
"""Seed to step to what was measured."""


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many learners took each stacked step."""
    found: list[int] = []
    step = stacked_step.LearnerStack.step

    def spy(self, batches, number):
        found.append(len(self.learners))
        return step(self, batches, number)

    monkeypatch.setattr(stacked_step.LearnerStack, "step", spy)
    return found


def session(root: Path, log: MemoryLog, plan: Plan, *, pack: int = packed.PACK, **keywords) -> Recorder:
    recorder = record(plan, log, root=root)
    run_inline(recorder, packed.PATH, data_dir=root / "data", checkpoint_seconds=0.0, pack=pack, **keywords)
    return recorder


def curves(log: MemoryLog, plan: Plan) -> Curves:
    seeds = {each.trial_id: each.seed for each in plan.trials}
    found: Curves = {}
    for event in log.of(EventKind.MEASURED):
        metrics = event.payload["metrics"]
        shown = {name: value for name, value in metrics.items() if name not in NONDETERMINISTIC}
        found.setdefault(seeds[event.trial_id], {})[event.payload["step"]] = shown
    return found


def outcomes(log: MemoryLog, plan: Plan) -> dict[int, OutcomeKind]:
    seeds = {each.trial_id: each.seed for each in plan.trials}
    return {seeds[trial_id]: kind for trial_id, kind in log.outcomes().items()}


def check_alike(found: Curves, expected: Curves, seeds: Sequence[int]) -> None:
    for seed in seeds:
        assert found[seed].keys() == expected[seed].keys()
        for step, metrics in expected[seed].items():
            assert found[seed][step] == pytest.approx(metrics, rel=1e-4, abs=1e-5)


@pytest.fixture
def apart(tmp_path: Path) -> Callable[[Plan], Curves]:
    """What trials measure that run one after the other."""

    def run(plan: Plan) -> Curves:
        log = MemoryLog()
        session(tmp_path / "apart", log, plan, pack=1)
        return curves(log, plan)

    return run


def test_seeds_that_share_steps_are_what_they_are_alone(tmp_path, apart, sizes):
    plan, log = packed.plan((1, 2, 3, 4), arms=2), MemoryLog()
    recorder = session(tmp_path / "together", log, plan)
    assert recorder.finished
    assert sizes == [3] * 18, "three of each arm's four seeds together, the last alone"
    check_alike(curves(log, plan), apart(plan), (1, 2, 3, 4))
    assert set(outcomes(log, plan).values()) == {OutcomeKind.FINISHED}
    folder = SweepFolder(tmp_path / "together")
    for each in plan.trials:
        assert "step-000000009" in {found.name for found in folder.checkpoint(each.trial_id).iterdir()}


@pytest.mark.parametrize(
    ("fault", "kind"), [("diverge", OutcomeKind.DIVERGED), ("raise", OutcomeKind.CRASHED)]
)
def test_one_that_goes_wrong_leaves_the_others_alone(tmp_path, apart, sizes, fault, kind):
    plan, log = packed.plan(faults={"2": fault}), MemoryLog()
    session(tmp_path / "together", log, plan)
    assert outcomes(log, plan) == {1: OutcomeKind.FINISHED, 2: kind, 3: OutcomeKind.FINISHED}
    assert sizes[-1] == 2, "the others go on together"
    expected = apart(plan)
    check_alike(curves(log, plan), expected, (1, 3))
    assert list(curves(log, plan)[2]) == list(expected[2]) == [3]


def test_what_fails_for_all_is_done_by_each_alone(tmp_path, apart, monkeypatch):
    def fails(self, batches, number):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(stacked_step.LearnerStack, "step", fails)
    plan, log = packed.plan(), MemoryLog()
    session(tmp_path / "together", log, plan)
    assert curves(log, plan) == apart(plan)


def test_an_update_that_fails_half_way_is_not_repeated(tmp_path, apart, monkeypatch):
    """Weights have taken the step and others have not: all three end there, with what they had measured."""
    update = stacked_step.LearnerStack._update

    def fails(self, number):
        update(self, number)
        if number == 4:
            raise MemoryError("no memory left")

    monkeypatch.setattr(stacked_step.LearnerStack, "_update", fails)
    plan, log = packed.plan(), MemoryLog()
    session(tmp_path / "together", log, plan)
    assert set(outcomes(log, plan).values()) == {OutcomeKind.CRASHED}
    expected = apart(plan)
    for seed, found in curves(log, plan).items():
        assert found == {step: pytest.approx(expected[seed][step], rel=1e-4, abs=1e-5) for step in found}
        assert max(found) < 5


def test_a_stop_saves_all_and_they_go_on_together(tmp_path, apart, sizes):
    plan, log, stop = packed.plan(), MemoryLog(), threading.Event()

    def changed() -> None:
        if log.of(EventKind.MEASURED):
            stop.set()

    recorder = session(tmp_path / "together", log, plan, stop=stop, on_change=changed)
    assert recorder.draining == INTERRUPTED
    assert [each.payload["kind"] for each in log.of(EventKind.ENDED)] == [OutcomeKind.STOPPED] * 3
    recorder.close()
    before = len(sizes)
    assert session(tmp_path / "together", log, plan).finished
    assert len(sizes) > before
    check_alike(curves(log, plan), apart(plan), (1, 2, 3))


class _Killed(Exception):
    pass


@pytest.mark.parametrize("after", range(1, 10))
def test_killed_anywhere_they_end_as_undisturbed(tmp_path, apart, after):
    """Some were saved at a later step than others: these catch up first."""
    plan, log, changes = packed.plan(), MemoryLog(), 0

    def changed() -> None:
        nonlocal changes
        changes += 1
        if changes == after:
            raise _Killed

    with pytest.raises(_Killed):
        session(tmp_path / "together", log, plan, on_change=changed)
    assert session(tmp_path / "together", log, plan).finished
    check_alike(curves(log, plan), apart(plan), (1, 2, 3))


@pytest.mark.slow
def test_a_seed_that_kills_the_process_costs_the_others_nothing(tmp_path, apart):
    """They go on alone, until each has made progress."""
    command = [sys.executable, "-m", "tests.support.packed", str(tmp_path / "together")]
    assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    plan, log = packed.deadly(), MemoryLog()
    with Ledger.open(SweepFolder(tmp_path / "together").ledger_url, "synthetic") as ledger:
        log.written.extend(ledger.events())
    assert set(outcomes(log, plan).values()) == {OutcomeKind.FINISHED}
    (tmp_path / "apart" / "data").mkdir(parents=True)
    (tmp_path / "apart" / "data" / "killed-2").touch()
    check_alike(curves(log, plan), apart(plan), (1, 2, 3, 4))


def test_a_launch_reads_from_the_plan_how_many(tmp_path, sizes):
    folder, setup = SweepFolder(tmp_path / "runs" / "synthetic"), Setup(tmp_path / "data", packed.PATH)
    assert run_sweep(packed.plan(), folder, setup, "name: synthetic\n", driver="inline").exit_code == 0
    assert sizes == [3] * 9


def test_seeds_run_together_in_the_rounds_between_looks(tmp_path, sizes):
    answer = AnswerPlan(("valid/loss",), 1e-9, 0.05, 1)
    plan, log, expected = packed.plan(tuple(range(1, 10)), arms=2, answer=answer), MemoryLog(), MemoryLog()
    assert session(tmp_path / "together", log, plan).finished
    assert 3 in sizes
    session(tmp_path / "one by one", expected, plan, pack=1)
    assert log.outcomes() == expected.outcomes()
    assert set(log.outcomes().values()) <= {OutcomeKind.FINISHED, OutcomeKind.SKIPPED}


def test_what_cannot_be_trained_together_shares_a_process_alone(tmp_path, apart, sizes):
    """A search may have drawn it."""
    plan, log = packed.plan(accumulate=2), MemoryLog()
    assert session(tmp_path / "together", log, plan).finished
    assert not sizes
    assert curves(log, plan) == apart(plan)


def test_what_each_prints_is_its_own(tmp_path):
    plan, log = packed.plan(faults={"1": "print", "3": "print"}), MemoryLog()
    (tmp_path / "together").mkdir()
    session(tmp_path / "together", log, plan)
    folder, said = SweepFolder(tmp_path / "together"), {}
    for each in plan.trials:
        file = folder.log(each.trial_id, 1)
        said[each.seed] = file.read_text() if file.exists() else ""
    assert said == {1: "seed 1 was here\n", 2: "", 3: "seed 3 was here\n"}


def test_seconds_of_all_add_up_to_what_passed(tmp_path):
    plan, log = packed.plan(), MemoryLog()
    begin = time.perf_counter()
    session(tmp_path / "together", log, plan)
    passed = time.perf_counter() - begin
    last = {event.trial_id: event.payload["seconds"] for event in log.of(EventKind.MEASURED)}
    assert 0 < sum(last.values()) <= passed
