"""`haltsweep check` and `plan` report every fault of all files and profiles once and start nothing."""

import json
import re

import pytest

from tests.support.processes.commands import TINY


@pytest.fixture
def spec(tmp_path):
    """Return a function that writes TINY with some texts replaced."""

    def write(name="tiny.yaml", *changes):
        text = TINY
        for text_before, text_after in changes:
            assert text_before in text
            text = text.replace(text_before, text_after)
        (tmp_path / name).write_text(text)
        return name

    return write


def test_check_reads_all_files(haltsweep, spec):
    wrong_spec = spec("a.yaml", ("trials_per_arm: 2", "trials_per_arm: two"))
    result = haltsweep("check", wrong_spec, "none.yaml", spec())
    assert result.code == 2
    assert re.fullmatch(r"tiny\.yaml: ok .*short.*\n", result.out)
    assert [line.partition(" ")[0] for line in result.err.splitlines()] == [
        *("a.yaml:14:", "none.yaml:", "tiny.yaml:")
    ]


def test_fault_of_one_profile_names_the_profile(haltsweep, spec):
    result = haltsweep("check", spec("tiny.yaml", ("baseline.train.steps: 2", "baseline.model.heads: 3")))
    assert result.code == 2
    assert all("'short'" in line for line in result.err.splitlines())


def test_plan_applies_overrides_before_profiles(haltsweep, spec):
    result = haltsweep(
        "plan", spec(), "confirm.seeds=[9]", "arms.minus-gate.why=because", "--profile", "short", "--json"
    )
    assert result.code == 0
    plan_json = json.loads(result.out)
    assert plan_json["confirm"]["seeds"] == [9]
    assert plan_json["arms"][0]["settings"]["train"]["steps"] == 2
    assert plan_json["arms"][1]["why"] == "because"


def test_calibrated_plan_estimates_times(haltsweep, spec):
    calibrated_plan = json.loads(haltsweep("plan", spec(), "--profile", "short", "--calibrate", "--json").out)
    assert all(estimate["seconds_per_step"] > 0 for estimate in calibrated_plan["prices"])
    uncalibrated_plan = json.loads(haltsweep("plan", spec(), "--profile", "short", "--json").out)
    assert all(estimate["seconds_per_step"] is None for estimate in uncalibrated_plan["prices"])


def test_plan_without_data_warns_that_launch_would_fail(haltsweep, spec, tmp_path):
    task = TINY[TINY.index("  task:") : TINY.index("  model:")]
    new_task = "  task: {name: lra_text, folder: aclImdb}\n"
    name = spec("tiny.yaml", (task, new_task), ("near-iid", "test"))
    result = haltsweep("plan", name)
    assert result.code == 0
    assert "8 trials" in result.out
    assert haltsweep("check", name).code == 0
    for refusal in (result, haltsweep("check", "--run", name), haltsweep("launch", name)):
        assert re.search(r"lra_text .*folder .*train/neg", refusal.err.replace("\n", " "))
    assert refusal.code == 2
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_plan_reports_missing_resources_of_this_machine(haltsweep, spec, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    arguments = spec(), "resources.gpus=0.5", "baseline.train.precision=fp16"
    result = haltsweep("plan", *arguments)
    assert (result.code, "8 trials" in result.out) == (0, True)
    assert "cpus=1 and gpus=0.5" in " ".join(result.err.split())
    refusal = haltsweep("launch", *arguments, "--driver", "inline")
    assert refusal.code == 2
    assert "'fp16'" in refusal.err
    assert [path.name for path in tmp_path.iterdir()] == [arguments[0]]
