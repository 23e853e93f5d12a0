"""Processes of trials and the launching process are killed; the resumed sweep has the same results."""

import random
import signal

import pytest

from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from orchestrator.trials import OutcomeKind
from tests.support.processes.forks import run_module
from tests.support.processes.logs import content
from tests.support.sweeps.inline_sweep import plan

MOMENTS = random.Random(20).choices(range(1, 9), k=12)


def run_session(root, *changes):
    process = run_module("tests.support.sweeps.inline_sweep", root, *changes)
    process.communicate()
    code = process.returncode
    assert code in {0, -signal.SIGKILL}
    return code == 0


def read_events(root):
    with Ledger.open(SweepFolder(root).ledger_url, "synthetic") as ledger:
        return list(ledger.events())


def check_results(root):
    """Assert that every trial finished once with every step; return params and measurements of each trial."""
    log = read_events(root)
    finals = [
        event.trial_id
        for event in log
        if event.kind is EventKind.ENDED and OutcomeKind(event.payload["kind"]).final
    ]
    assert sorted(finals) == sorted(trial.trial_id for trial in plan().trials)
    assert {history.ended["kind"] for history in content(log).values()} == {"finished"}
    for history in content(log).values():
        steps = [event["step"] for event in history.measured]
        assert steps == ([4] if history.asked["phase"] == "posthoc" else [1, 2, 3, 4])
    return {trial_id: (history.asked, history.measured) for trial_id, history in content(log).items()}


@pytest.fixture(scope="module")
def sweep_with_killed_trials(tmp_path_factory):
    """Run a sweep in one session in which some trials kill their process."""
    root = tmp_path_factory.mktemp("deadly")
    assert run_session(root), "the launching process must survive the death of a trial's process"
    return root


def test_killed_trial_repeats_only_its_last_step(sweep_with_killed_trials):
    check_results(sweep_with_killed_trials)
    assert [
        event
        for event in read_events(sweep_with_killed_trials)
        if event.kind is EventKind.ENDED and event.payload.get("lost")
    ]
    steps = (sweep_with_killed_trials / "data/steps.txt").read_text().splitlines()
    repeated = {line for line in steps if steps.count(line) > 1}
    assert {line.rsplit(maxsplit=1)[-1] for line in repeated} == {"3"}, (
        "only the step of the death may be repeated"
    )


@pytest.mark.slow
def test_sweep_killed_at_random_moments_has_the_same_results(tmp_path, sweep_with_killed_trials):
    for moment in MOMENTS:
        run_session(tmp_path, moment)
    while not run_session(tmp_path):
        pass
    assert check_results(tmp_path) == check_results(sweep_with_killed_trials)
