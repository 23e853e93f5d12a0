"""`pytest --haltsweep`, in repositories that have nothing but specs."""

from pathlib import Path

import pytest

from tests.support.processes.forked_pytest import run_pytest

pytest_plugins = ["pytester"]

GOOD = """\
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
    """A folder `experiments` with one good spec; no conftest and no settings of ours."""
    write(pytester, "gates.yaml", GOOD)
    return pytester


def write(repository: pytest.Pytester, name: str, text: str) -> Path:
    file = repository.path / "experiments" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def run(repository: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """As a user would, in a process of its own."""
    return run_pytest(repository, "-p", "no:cacheprovider", *arguments)


def test_a_spec_and_its_profiles_are_planned_and_trained(repository: pytest.Pytester) -> None:
    result = run(repository, "--haltsweep", "experiments", "-v", "-W", "error")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [f"experiments/gates.yaml::{name} PASSED*" for name in ("plan", "small", "wide")]
    )
    left = {path.name for path in repository.path.iterdir() if path.is_dir()}
    assert {name for name in left if not name.startswith("runpytest-")} == {"experiments"}


def test_ids_choose_and_collecting_runs_nothing(repository: pytest.Pytester) -> None:
    collected = run(repository, "--haltsweep", "--collect-only", "-q", "experiments")
    assert collected.outlines[:3] == [f"experiments/gates.yaml::{name}" for name in ("plan", "small", "wide")]
    write(repository, "gates.yaml", GOOD.replace("name: gates", "nane: gates"))
    run(repository, "--haltsweep", "experiments/gates.yaml::wide").assert_outcomes(failed=1)
    run(repository, "--haltsweep", "experiments", "-k", "small").assert_outcomes(failed=1, deselected=2)


def test_a_failure_has_the_planner_message(repository: pytest.Pytester) -> None:
    write(repository, "a-typo.yaml", GOOD.replace("{model.gate: false}", "{model.gatee: false}"))
    result = run(repository, "--haltsweep", "experiments", "-k", "a-typo and plan")
    result.assert_outcomes(failed=1, deselected=5)
    result.stdout.fnmatch_lines(
        [
            "*experiments/a-typo.yaml*",
            "experiments/a-typo.yaml:8: arms.minus-gate.set.model.gatee: *'gate'*",
        ]
    )
    shown = str(result.stdout)
    assert "Traceback" not in shown
    assert "planner.py" not in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [unclosed\n", "experiments/broken.yaml:2: *"),
        ("", "experiments/broken.yaml:1: must be a mapping *"),
    ],
)
def test_a_file_without_a_spec_is_one_failure(repository: pytest.Pytester, text: str, message: str) -> None:
    write(repository, "broken.yaml", text)
    result = run(repository, "--haltsweep", "experiments/broken.yaml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])


def test_other_pytest_runs_are_unaffected(repository: pytest.Pytester) -> None:
    repository.makepyfile(
        """
        import sys

        def test_nothing_heavy_is_there():
            loaded = {name.partition(".")[0] for name in sys.modules}
            assert not loaded & {"torch", "ray", "mlflow", "optuna", "yaml", "pydantic", "trainables"}
            assert "orchestrator.pytest_plugin" in sys.modules
        """
    )
    # Hydra has a plugin too, which imports yaml.
    options = ["-p", "no:cacheprovider", "-p", "no:hydra_pytest", "-W", "error"]
    fresh = repository.runpytest_subprocess(*options)
    fresh.assert_outcomes(passed=1)
