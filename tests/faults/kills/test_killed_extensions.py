"""A killed `haltsweep extend` leaves earlier results unchanged, and `resume` runs each added trial once."""

import json
from collections import Counter

import pytest

from orchestrator.cli.stored_sweep import open_stored_sweep
from orchestrator.ledger.events import EventKind
from tests.support.processes.commands import TINY, Shell, wait_for

pytestmark = pytest.mark.slow
SPEC = TINY.replace("steps: 4", "steps: 30").replace("report_every: 2", "report_every: 10")


def read_sweep(shell):
    """Return the plan and the events of trials."""
    with open_stored_sweep("tiny", shell.folder / "runs") as sweep:
        return sweep.plan, [event for event in sweep.ledger.events() if event.trial_id is not None]


def extend_kill_and_resume(shell, arguments, *, after, max_kills):
    """Kill an extension after `after` of its trials have ended, and resume it. Assert that earlier trials are
    unchanged and each new trial ran once; return the plan before and after the extension."""
    answer = shell.run("launch", "tiny.yaml", "--driver", "inline")
    assert answer.code == 0, answer
    plan, records_before = read_sweep(shell)
    known_ids = {trial.trial_id for trial in plan.trials}

    def count_ended():
        return sum(event.kind is EventKind.ENDED for event in read_sweep(shell)[1][len(records_before) :])

    with shell.started("extend", "tiny", *arguments) as process:
        wait_for(lambda: count_ended() >= after, process)
        process.kill()
        process.wait()
    extended, half_events = read_sweep(shell)
    assert known_ids < {trial.trial_id for trial in extended.trials}
    killed = sum(event.kind is EventKind.ENDED for event in half_events[len(records_before) :])
    assert killed < max_kills, "the kill must come before the end"
    answer = shell.run("resume", "tiny", "--driver", "inline")
    assert answer.code == 0, answer

    final_plan, events = read_sweep(shell)
    assert final_plan == extended
    assert events[: len(half_events)] == half_events
    assert half_events[: len(records_before)] == records_before
    assert [trial for trial in final_plan.trials if trial.trial_id in known_ids] == list(plan.trials)
    new_events = events[len(records_before) :]
    assert not [event for event in new_events if event.trial_id in known_ids], (
        "the extension must not change earlier trials"
    )
    finished = Counter(
        event.trial_id
        for event in new_events
        if event.kind is EventKind.ENDED and event.payload["kind"] == "finished"
    )
    assert finished == Counter(
        trial.trial_id for trial in final_plan.trials if trial.trial_id not in known_ids
    )
    measured = Counter(
        (event.trial_id, event.payload["step"]) for event in new_events if event.kind is EventKind.MEASURED
    )
    assert set(measured.values()) == {1}
    assert {step for _, step in measured} == {10, 20, 30}
    assert shell.run("verify", "tiny").code == 0, "Parquet must contain all trials"
    return plan, final_plan


def report_cells(shell):
    """Return the cells of the report's JSON file."""
    report = json.loads((shell.folder / "runs/tiny/report/report.json").read_text(encoding="utf-8"))
    return report["cells"]


def test_killed_extension_resumes_and_keeps_earlier_results(tmp_path):
    """One extension adds seeds, a split and an arm."""
    shell = Shell.at(tmp_path, SPEC)
    arm_override = "arms.wide={why: more room, set: {model.width: 32}}"
    arguments = ("--seeds", "2", "--splits", "length-20-40", arm_override, "--driver", "inline")
    plan, final_plan = extend_kill_and_resume(shell, arguments, after=2, max_kills=14)
    reevaluated = [
        (trial.arm, trial.seed, trial.late_splits) for trial in final_plan.trials if trial.phase == "posthoc"
    ]
    confirmed = [(trial.arm, trial.seed) for trial in plan.trials if trial.phase == "confirm"]
    assert sorted(reevaluated) == sorted((*arm_and_seed, ("length-20-40",)) for arm_and_seed in confirmed)
    kinds = Counter((trial.arm, trial.phase) for trial in final_plan.trials if trial.arm == "wide")
    assert kinds == {("wide", "search"): 2, ("wide", "confirm"): 4}
    for cell in report_cells(shell):
        if cell["metric"].endswith("accuracy") and not cell["metric"].startswith("valid/"):
            assert cell["estimate"]["n"] == 4, f"{cell['metric']}: measured trials and re-evaluations"
    assert {cell["arm"] for cell in report_cells(shell) if cell["metric"] == "length-20-40/accuracy"} == {
        "baseline",
        "minus-gate",
        "wide",
    }
