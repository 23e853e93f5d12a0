"""`haltsweep check` and `plan` report every fault of all files and profiles once and start nothing."""

import json
import re
from pathlib import Path

import pytest

from orchestrator.cli import planning
from orchestrator.cli.display import wait_display as waiting
from tests.support.processes.commands import TINY

NO_VERDICT = "Warning: With 2 seeds and 1 comparison there can be no verdict, which needs at least 3 seeds."
EXPERIMENTS = Path(__file__).parents[4] / "experiments"


@pytest.fixture
def spec(tmp_path):
    """Return a function that writes TINY with some texts replaced."""

    def write(name="tiny.yaml", **changes):
        text = TINY
        for text_before, text_after in changes.values():
            assert text_before in text
            text = text.replace(text_before, text_after)
        (tmp_path / name).write_text(text)
        return name

    return write


def test_check_accepts_valid_specs(haltsweep, spec):
    (plain_spec, profile_spec) = (
        spec("plain.yaml", a=(TINY[TINY.index("profiles:") :], "")),
        spec("rich.yaml"),
    )
    result = haltsweep("check", plain_spec, profile_spec)
    assert (result.code, result.err) == (0, f"plain.yaml: {NO_VERDICT}\nrich.yaml: {NO_VERDICT}\n")
    assert result.out == "plain.yaml: ok\nrich.yaml: ok (and with short)\n"


def test_check_of_enough_seeds_has_no_warning(haltsweep, spec):
    result = haltsweep("check", spec(a=("seeds: [101, 102]", "seeds: [101, 102, 103]")))
    assert (result.code, result.err) == (0, "")


def test_check_reads_all_files(haltsweep, spec):
    result = haltsweep(
        "check", spec("a.yaml", x=("trials_per_arm: 2", "trials_per_arm: two")), "none.yaml", spec()
    )
    assert result.code == 2
    assert result.out == "tiny.yaml: ok (and with short)\n"
    assert result.err.splitlines() == [
        "a.yaml:14: search.trials_per_arm: must be an integer >= 1, got the text 'two'",
        "none.yaml: cannot be read: no such file or directory",
        f"tiny.yaml: {NO_VERDICT}",
    ]


def test_missing_spec_is_answered_with_a_similar_file_name(haltsweep, spec):
    spec("digits.yaml")
    for command in ("check", "plan", "launch"):
        result = haltsweep(command, "digit.yaml")
        assert (result.code, result.out) == (2, "")
        assert "digits.yaml" in result.err
    assert "digits.yaml" not in haltsweep("plan", "other.yaml").err


def test_check_refuses_an_override(haltsweep, spec):
    result = haltsweep("check", spec(), "search.seed=1")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "check accepts only spec files, got the text 'search.seed=1'; give overrides with a single spec: "
        "`haltsweep plan SPEC KEY=VALUE`\n"
    )


def test_check_lists_faults_once_in_line_order(haltsweep, spec):
    name = spec(
        a=("width: 16", "widht: 16"), b=("gate: false", "gaet: false"), c=("model.gaet", "model.gaet")
    )
    result = haltsweep("check", name)
    assert result.code == 2
    lines = [int(line.split(":")[1]) for line in result.err.splitlines()]
    assert lines == sorted(lines)
    assert len(set(result.err.splitlines())) == len(lines)


def test_fault_of_one_profile_names_the_profile(haltsweep, spec):
    result = haltsweep("check", spec(a=("baseline.train.steps: 2", "baseline.model.heads: 3")))
    assert result.code == 2
    assert result.err.count("\n") >= 1
    assert all(line.endswith("(with the profile 'short')") for line in result.err.splitlines())


def test_fault_of_the_plan_is_reported_once_for_all_profiles(haltsweep, spec):
    result = haltsweep("check", spec(a=("set: {model.gate: false}", "set: {model.gate: true}")))
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert "minus-gate" in result.err
    assert "with the profile" not in result.err


def test_plan_applies_overrides_before_profiles(haltsweep, spec):
    result = haltsweep(
        "plan", spec(), "confirm.seeds=[9]", "arms.minus-gate.why=because", "--profile", "short", "--json"
    )
    assert result.code == 0
    plan_json = json.loads(result.out)
    assert plan_json["confirm"]["seeds"] == [9]
    assert plan_json["arms"][0]["settings"]["train"]["steps"] == 2
    assert plan_json["arms"][1]["why"] == "because"


def test_plan_prints_trials_changes_and_missing_power(haltsweep, spec):
    result = haltsweep("plan", spec())
    assert (result.code, result.err) == (0, "")
    assert "8 trials" in result.out
    assert re.search(r"model\.gate +true +-> +false", result.out)
    assert "needs at least 3 seeds" in result.out


def test_plan_counts_published_rows_that_overrides_exclude(haltsweep, spec):
    row = "{arm: minus-gate, metric: accuracy, values: {near-iid: 0.5}, source: a}"
    name = spec(a=("baseline:\n", f"published:\n  - {row}\nbaseline:\n"))
    assert "published row" not in haltsweep("plan", name).out
    output = " ".join(haltsweep("plan", name, "--profile", "short").out.split())
    assert "1 published row" in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(("--profile", "shrt"), "'short'"), (("baseline.train.stepz=1",), "'steps'"), (("steps",), "'steps'")],
)
def test_plan_refuses_invalid_overrides(haltsweep, spec, arguments, expected):
    result = haltsweep("plan", spec(), *arguments)
    assert (result.code, result.out) == (2, "")
    assert expected in result.err


def test_calibrated_plan_estimates_times(haltsweep, spec):
    calibrated_plan = json.loads(haltsweep("plan", spec(), "--profile", "short", "--calibrate", "--json").out)
    assert all(estimate["seconds_per_step"] > 0 for estimate in calibrated_plan["prices"])
    uncalibrated_plan = json.loads(haltsweep("plan", spec(), "--profile", "short", "--json").out)
    assert all(estimate["seconds_per_step"] is None for estimate in uncalibrated_plan["prices"])


def test_plan_without_data_warns_that_launch_would_fail(haltsweep, spec, tmp_path):
    task = TINY[TINY.index("  task:") : TINY.index("  model:")]
    name = spec(a=(task, "  task: {name: lra_text, folder: aclImdb}\n"), b=("near-iid", "test"))
    result = haltsweep("plan", name)
    assert result.code == 0
    assert "8 trials" in result.out
    missing = "the data of lra_text cannot be read: folder must hold train/neg"
    assert f"launch will not start here: {missing}" in result.err.replace("\n", " ")
    assert haltsweep("check", name).code == 0
    refusal = haltsweep("launch", name)
    assert (refusal.code, missing in refusal.err.replace("\n", " ")) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_plan_reports_missing_resources_of_this_machine(haltsweep, spec, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    arguments = spec(), "resources.gpus=0.5", "baseline.train.precision=fp16"
    result = haltsweep("plan", *arguments)
    assert (result.code, "8 trials" in result.out) == (0, True)
    warning = " ".join(result.err.split())
    assert "cpus=1 and gpus=0.5" in warning
    refusal = haltsweep("launch", *arguments, "--driver", "inline")
    assert refusal.code == 2
    assert "'fp16'" in refusal.err
    assert [path.name for path in tmp_path.iterdir()] == [arguments[0]]


def test_slow_plan_reports_its_progress(haltsweep, spec, monkeypatch):
    monkeypatch.setattr(planning, "FIRST_S", 0.0)
    monkeypatch.setattr(waiting, "LOOK_S", 0.001)
    result = haltsweep("plan", spec())
    assert result.code == 0
    assert re.search(r"^planning: .*; Ctrl-C ends it, nothing is written$", result.err, re.MULTILINE)
