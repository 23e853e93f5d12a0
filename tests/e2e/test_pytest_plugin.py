"""`pytest --haltsweep` in repositories that contain only specs."""

from pathlib import Path

import pytest

from tests.support.processes.forked_pytest import run_pytest

pytest_plugins = ["pytester"]

VALID_SPEC = """\
name: gates
question: Does the gate help?
baseline:
  task: {name: listops, train_length_max: 50}
  model: {name: universal, width: 16, heads: 2, feedforward_width: 16, max_layers: 3}
  train: {steps: 20, report_every: 10}
arms:
  minus-gate: {why: plain feed-forward block, set: {model.gate: false}}
search:
  also: {train.lr: {float: [1.0e-4, 2.0e-3], log: true}}
  trials_per_arm: 2
  objectives: [{metric: valid/accuracy, goal: max}]
confirm: {seeds: [1, 2], splits: [near-iid]}
profiles:
  small: {baseline.train.steps: 10}
  wide: {baseline.model.width: 32}
"""


@pytest.fixture
def repository(pytester: pytest.Pytester) -> pytest.Pytester:
    """A repository with one valid spec in the folder `experiments`, without conftest or settings."""
    write_spec(pytester, "gates.yaml", VALID_SPEC)
    return pytester


def write_spec(repository: pytest.Pytester, name: str, text: str) -> Path:
    file = repository.path / "experiments" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def run(repository: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest in a new process, as a user would."""
    return run_pytest(repository, "-p", "no:cacheprovider", *arguments)


def test_plugin_plans_and_trains_a_spec_and_its_profiles(repository: pytest.Pytester) -> None:
    result = run(repository, "--haltsweep", "experiments", "-v", "-W", "error")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [f"experiments/gates.yaml::{name} PASSED*" for name in ("plan", "small", "wide")]
    )
    folders = {path.name for path in repository.path.iterdir() if path.is_dir()}
    assert {name for name in folders if not name.startswith("runpytest-")} == {"experiments"}


def test_failure_shows_the_message_of_the_planner(repository: pytest.Pytester) -> None:
    write_spec(repository, "a-typo.yaml", VALID_SPEC.replace("{model.gate: false}", "{model.gatee: false}"))
    result = run(repository, "--haltsweep", "experiments", "-k", "a-typo and plan")
    result.assert_outcomes(failed=1, deselected=5)
    result.stdout.fnmatch_lines(
        ["*experiments/a-typo.yaml*", "experiments/a-typo.yaml:8: arms.minus-gate.set.model.gatee: *'gate'*"]
    )
    output = str(result.stdout)
    assert "Traceback" not in output
    assert "planner.py" not in output
