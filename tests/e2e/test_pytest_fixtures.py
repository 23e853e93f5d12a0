"""Fixtures for users' tests of their specs: `sweep_spec` with its snapshots, and `chaos`."""

from pathlib import Path

import pytest

from orchestrator.testing.chaos import small
from orchestrator.testing.spec_under_test import SpecUnderTest
from tests.support.processes.forked_pytest import run_pytest
from tests.support.training_code.own_code import forgotten

pytest_plugins = ["pytester"]

SPEC = """\
name: walks
question: Does the drift matter?
trainable: walk:{function}
baseline: {{drift: 0.5, noise: 1.0, steps: 4}}
arms:
  minus-drift: {{why: nothing pulls, set: {{drift: 0.0}}}}
search:
  also: {{noise: {{float: [0.1, 1.0]}}}}
  trials_per_arm: 8
  objectives: [{{metric: valid/score, goal: max}}]
confirm: {{seeds: [1, 2, 3, 4], splits: [test]}}
"""
WALK = '''
import json
import time

def train(settings, trial):
    walk(settings, trial, lambda: {})

def timed(settings, trial):
    walk(settings, trial, lambda: {"valid/speed": time.perf_counter()})

def walk(settings, trial, more):
    saved, place, first = trial.folder / "state.json", 0.0, 1
    if saved.exists():
        first, place = json.loads(saved.read_text())
    for step in range(first, settings["steps"] + 1):
        place += settings["drift"] + settings["noise"] * trial.generator("walk", step).random()
        saved.write_text(json.dumps([step + 1, place]))
        found = {"valid/score": place} | more()
        if step == settings["steps"]:
            found |= {f"{split}/score": place for split in trial.splits}
        trial.report(step, found)

def forgetful(settings, trial):
    """Saves how far it is, not where it is."""
    saved = trial.folder / "state.json"
    first = json.loads(saved.read_text()) if saved.exists() else 1
    place = 0.0
    for step in range(first, settings["steps"] + 1):
        place += trial.generator("walk", step).random()
        saved.write_text(json.dumps(step + 1))
        trial.report(step, {"valid/score": place})
'''


@pytest.fixture
def repository(pytester: pytest.Pytester) -> pytest.Pytester:
    """A user's repository with a spec and its training code."""
    (pytester.path / "walk.py").write_text(WALK)
    write_spec(pytester, "train")
    return pytester


def write_spec(repository: pytest.Pytester, function: str, *, changed: tuple[str, str] = ("", "")) -> Path:
    file = repository.path / "walks.yaml"
    file.write_text(SPEC.format(function=function).replace(*changed))
    return file


def run(repository: pytest.Pytester, body: str, *arguments: str, **more_tests: str) -> pytest.RunResult:
    """Run a test with this body, and further tests by name, in a new process."""
    code = ""
    for name, test_body in {"it": body, **more_tests}.items():
        lines = "\n".join(f"    {line}" for line in test_body.splitlines())
        code += f"def test_{name}(sweep_spec, chaos):\n{lines}\n"
    (repository.path / "test_walks.py").write_text(code)
    return run_pytest(repository, "-p", "no:cacheprovider", "-W", "error", *arguments)


def test_spec_fixture_has_plan_arms_trials_and_estimate(repository: pytest.Pytester) -> None:
    body = """\
spec = sweep_spec("walks.yaml", {"search.trials_per_arm": 3, "confirm.seeds": [7, 8]})
assert spec.plan.name == "walks"
assert list(spec.arms) == ["baseline", "minus-drift"]
assert spec.arms["minus-drift"].settings["drift"] == 0.0
assert len(spec.trials) == 2 * (3 + 2)
assert spec.price["baseline"].trials == {"search": 3, "confirm": 2}
assert len(sweep_spec("walks.yaml", ["search=null"]).trials) == 8
"""
    run(repository, body).assert_outcomes(passed=1)


@pytest.mark.slow
def test_snapshot_stores_and_compares_the_expansion(repository: pytest.Pytester) -> None:
    body = 'sweep_spec("walks.yaml").check_snapshot()'
    result = run(repository, body, "--snapshot-update")
    result.assert_outcomes(passed=1)
    snapshot = repository.path / "snapshots" / "test_walks.test_it.walks.txt"
    text = snapshot.read_text()
    assert "minus-drift  nothing pulls" in text
    assert "24 trials" in text
    run(repository, body).assert_outcomes(passed=1)
    write_spec(repository, "train", changed=("drift: 0.5", "drift: 0.6"))
    changed = run(repository, body)
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines([f"*{snapshot.name}*", "*-*drift 0.5*", "*+*drift 0.6*"])
    assert snapshot.read_text() == text


TWO_TRIALS = '["search=null", "confirm.seeds=[1]"]'
"""Overrides that leave one trial of each arm, since every session starts a process for each trial."""
SURVIVED = """\
survived = chaos("timed.yaml", kill_at=11, ignore=["valid/speed"])
assert survived.trials == 2 * (2 + 2)
assert set(survived.outcomes.values()) == {"finished"}
"""


@pytest.mark.slow
def test_chaos_reports_differences_between_runs_and_nothing_else(repository: pytest.Pytester) -> None:
    """One process of pytest runs all sweeps, because it imports their dependencies once."""
    for function in ("timed", "forgetful"):
        write_spec(repository, function).rename(repository.path / f"{function}.yaml")
    write_spec(repository, "train")
    result = run(
        repository,
        f'chaos(sweep_spec("walks.yaml", {TWO_TRIALS}), kill_at=1000)',
        forgetful=f'chaos(sweep_spec("forgetful.yaml", {TWO_TRIALS}), kill_at=6)',
        survived=SURVIVED,
    )
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*ValueError: kill_at *'walks', got 1000",
            "*_ test_forgetful _*",
            "*'walks' * event 6 *",
            "*baseline, confirm 0: valid/score of step *, got *",
        ]
    )


@pytest.mark.parametrize(
    ("sampler", "expected_sampler"),
    [("tpe", {"name": "tpe", "n_startup_trials": 1}), ("grid", {"name": "bruteforce"})],
)
def test_small_sweep_uses_the_sampler_of_its_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str, expected_sampler: dict[str, object]
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = SPEC.format(function="train").replace("search:", f"search:\n  sampler: {sampler}")
    spec = spec.replace("float: [0.1, 1.0]", "choice: [0.1, 0.2, 0.3]").replace("walk:", "walk_of_small:")
    (tmp_path / "walks.yaml").write_text(spec)
    (tmp_path / "walk_of_small.py").write_text(WALK)
    with forgotten(tmp_path):
        small_plan = small(SpecUnderTest(tmp_path / "walks.yaml")).plan
        assert dict(small_plan.search.sampler) == expected_sampler
