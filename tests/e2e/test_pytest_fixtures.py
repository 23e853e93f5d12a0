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

def endless(settings, trial):
    trial.report(1, {"valid/score": 1.0})
    time.sleep(1000)

def broken(settings, trial):
    raise RuntimeError("no data")
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
def test_faulty_spec_fails_with_the_message_of_the_planner(repository: pytest.Pytester) -> None:
    write_spec(repository, "train", changed=("drift: 0.0", "drfit: 0.0"))
    plain, missing = 'sweep_spec("walks.yaml")', 'sweep_spec("walk.yaml")'
    result = run(repository, 'chaos("walks.yaml", kill_at=3)', plain=plain, missing=missing)
    result.assert_outcomes(failed=3)
    unknown_field = "*walks.yaml:6: *walk:train has no field drfit*'drift'*"
    missing_spec = "*FileNotFoundError: a test of a spec needs a spec, found no*"
    result.stdout.fnmatch_lines(
        [
            "*_ test_it _*",
            unknown_field,
            "*_ test_plain _*",
            unknown_field,
            "*_ test_missing _*",
            missing_spec,
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")  # the traceback must end in the user's test


@pytest.mark.slow
def test_snapshot_stores_and_compares_the_expansion(repository: pytest.Pytester) -> None:
    body = 'sweep_spec("walks.yaml").check_snapshot()'
    first = run(repository, body)
    first.assert_outcomes(failed=1)
    first.stdout.fnmatch_lines(["*the snapshot * does not exist; *pytest --snapshot-update*"])
    written = run(repository, body, "--snapshot-update", twice=f"{body}\n{body}")
    written.assert_outcomes(passed=1, failed=1)
    snapshot = repository.path / "snapshots" / "test_walks.test_it.walks.txt"
    text = snapshot.read_text()
    assert "minus-drift  nothing pulls" in text
    assert "24 trials" in text
    repeated = run(
        repository, body, twice='spec = sweep_spec("walks.yaml")\n' + "spec.check_snapshot()\n" * 2
    )
    repeated.assert_outcomes(passed=1, failed=1)
    repeated.stdout.fnmatch_lines(["*a snapshot must have a name of its own in its test, got 'walks' twice*"])
    write_spec(repository, "train", changed=("drift: 0.5", "drift: 0.6"))
    changed = run(repository, body)
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(["*the expansion must be that of *", "*-*drift 0.5*", "*+*drift 0.6*"])
    assert snapshot.read_text() == text


@pytest.mark.slow
def test_snapshot_option_of_another_plugin_is_used(repository: pytest.Pytester) -> None:
    (repository.path / "other.py").write_text(
        "def pytest_addoption(parser):\n"
        "    parser.getgroup('other').addoption('--snapshot-update', action='store_true', dest='anew')\n"
    )
    body = 'sweep_spec("walks.yaml").check_snapshot()'
    run(repository, body, "-p", "other", "--snapshot-update").assert_outcomes(passed=1)
    run(repository, body, "-p", "other").assert_outcomes(passed=1)


GATES = """\
name: gates
question: Does the gate help?
baseline:
  task: {name: listops, trees: 400, near_iid_examples: 40, valid_examples: 40, test_examples: 5, depth_max: 4,
         arguments_max: 4, train_length_max: 30}
  model: {name: universal, width: 8, heads: 2, max_layers: 3}
  train: {steps: 2000, warmup_steps: 100, schedule: warmup, batch_size: 32}
arms: {minus-gate: {why: plain feed-forward block, set: {model.gate: false}}}
confirm: {seeds: [1], splits: [near-iid]}
"""
"""A spec of a built-in model, which trains longer than `chaos` does."""
TWO_TRIALS = '["search=null", "confirm.seeds=[1]"]'
"""Overrides that leave one trial of each arm, since every session starts a process for each trial."""
SURVIVED = """\
survived = chaos("timed.yaml", kill_at=(1, 11), ignore=["valid/speed"])
assert survived.trials == 2 * (2 + 2)
assert set(survived.outcomes.values()) == {"finished"}
"""


@pytest.mark.slow
@pytest.mark.longest
def test_chaos_reports_differences_between_runs_and_nothing_else(repository: pytest.Pytester) -> None:
    """One process of pytest runs all sweeps, because it imports their dependencies once."""
    for function in ("timed", "forgetful", "broken"):
        write_spec(repository, function).rename(repository.path / f"{function}.yaml")
    write_spec(repository, "train")
    (repository.path / "gates.yaml").write_text(GATES)
    result = run(
        repository,
        f'chaos(sweep_spec("walks.yaml", {TWO_TRIALS}), kill_at=(1, 1000))',
        forgetful=f'chaos(sweep_spec("forgetful.yaml", {TWO_TRIALS}), kill_at=6)',
        broken=f'chaos(sweep_spec("broken.yaml", {TWO_TRIALS}), kill_at=3)',
        survived=SURVIVED,
        built_in='assert chaos("gates.yaml", kill_at=6).trials == 2',
    )
    result.assert_outcomes(failed=3, passed=2)
    result.stdout.fnmatch_lines(
        [
            "*ValueError: kill_at must be from 1 to *, the events of 'walks', got 1000",
            "*_ test_forgetful _*",
            "*killed at event 6 and resumed, 'walks' must find what it finds undisturbed*",
            "*baseline, confirm 0: valid/score of step * must be *, got *",
            "*_ test_broken _*",
            "*trials of 'walks' must measure something, got none that did: crashed*",
        ]
    )


@pytest.mark.slow
def test_chaos_kills_a_sweep_after_a_timeout(repository: pytest.Pytester) -> None:
    write_spec(repository, "endless")
    result = run(repository, 'chaos("walks.yaml", kill_at=3, timeout_s=8)')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the sweep must end within 8 s, and was killed: let it train less, or *"])


@pytest.mark.parametrize(
    ("sampler", "expected_sampler"),
    [
        ("tpe", {"name": "tpe", "n_startup_trials": 1}),
        ("{name: tpe, n_startup_trials: 5, multivariate: true}", None),
        ("{name: nsga2, population_size: 4}", {"name": "nsga2"}),
        ("qmc", {"name": "qmc"}),
        ("grid", {"name": "bruteforce"}),
    ],
)
def test_small_sweep_uses_the_sampler_of_its_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str, expected_sampler: dict[str, object] | None
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = SPEC.format(function="train").replace("search:", f"search:\n  sampler: {sampler}")
    spec = spec.replace("float: [0.1, 1.0]", "choice: [0.1, 0.2, 0.3]").replace("walk:", "walk_of_small:")
    (tmp_path / "walks.yaml").write_text(spec)
    (tmp_path / "walk_of_small.py").write_text(WALK)
    with forgotten(tmp_path):
        small_plan = small(SpecUnderTest(tmp_path / "walks.yaml")).plan
        assert small_plan.search is not None
        expected = expected_sampler or {"name": "tpe", "n_startup_trials": 1, "multivariate": True}
        assert dict(small_plan.search.sampler) == expected
