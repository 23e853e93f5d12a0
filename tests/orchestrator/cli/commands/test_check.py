"""`haltsweep check` and `plan`: all faults of all files and profiles, each once, nothing started."""

import json
import re
from pathlib import Path

import pytest

from orchestrator.cli import planning
from orchestrator.cli.display import wait_display as waiting
from tests.support.processes.commands import TINY

EXPERIMENTS = Path(__file__).parents[4] / "experiments"


@pytest.fixture
def spec(tmp_path):
    """Writes TINY with some texts replaced."""

    def write(name="tiny.yaml", **changes):
        text = TINY
        for old, new in changes.values():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / name).write_text(text)
        return name

    return write


def test_sound_specs(haltsweep, spec):
    (plain, rich) = spec("plain.yaml", a=(TINY[TINY.index("profiles:") :], "")), spec("rich.yaml")
    result = haltsweep("check", plain, rich)
    assert (result.code, result.err) == (0, "")
    assert result.out == "plain.yaml: ok\nrich.yaml: ok (and with short)\n"


def test_all_files_are_looked_at(haltsweep, spec):
    result = haltsweep(
        "check", spec("a.yaml", x=("trials_per_arm: 2", "trials_per_arm: two")), "none.yaml", spec()
    )
    assert result.code == 2
    assert result.out == "tiny.yaml: ok (and with short)\n"
    assert result.err.splitlines() == [
        "a.yaml:14: search.trials_per_arm: must be an integer >= 1, got the text 'two'",
        "none.yaml: cannot be read: no such file or directory",
    ]


def test_a_missing_spec_is_answered_with_the_similar_one(haltsweep, spec):
    spec("digits.yaml")
    for command in ("check", "plan", "launch"):
        result = haltsweep(command, "digit.yaml")
        assert (result.code, result.out) == (2, "")
        assert "digits.yaml" in result.err
    assert "digits.yaml" not in haltsweep("plan", "other.yaml").err


def test_an_override_is_no_spec(haltsweep, spec):
    result = haltsweep("check", spec(), "search.seed=1")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "check accepts only spec files, got the text 'search.seed=1'; give overrides with a single spec: "
        "`haltsweep plan SPEC KEY=VALUE`\n"
    )


def test_faults_come_in_the_order_of_their_lines_and_once(haltsweep, spec):
    name = spec(
        a=("width: 16", "widht: 16"), b=("gate: false", "gaet: false"), c=("model.gaet", "model.gaet")
    )
    result = haltsweep("check", name)
    assert result.code == 2
    lines = [int(line.split(":")[1]) for line in result.err.splitlines()]
    assert lines == sorted(lines)
    assert len(set(result.err.splitlines())) == len(lines)


def test_a_fault_of_a_profile_alone_names_it(haltsweep, spec):
    result = haltsweep("check", spec(a=("baseline.train.steps: 2", "baseline.model.heads: 3")))
    assert result.code == 2
    assert result.err.count("\n") >= 1
    assert all(line.endswith("(with the profile 'short')") for line in result.err.splitlines())


def test_a_fault_of_the_plan_is_not_told_again_for_each_profile(haltsweep, spec):
    result = haltsweep("check", spec(a=("set: {model.gate: false}", "set: {model.gate: true}")))
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert "minus-gate" in result.err
    assert "with the profile" not in result.err


def test_plan_takes_overrides_and_profiles_in_this_order(haltsweep, spec):
    result = haltsweep(
        "plan", spec(), "confirm.seeds=[9]", "arms.minus-gate.why=because", "--profile", "short", "--json"
    )
    assert result.code == 0
    found = json.loads(result.out)
    assert found["confirm"]["seeds"] == [9]
    assert found["arms"][0]["settings"]["train"]["steps"] == 2
    assert found["arms"][1]["why"] == "because"


def test_plan_for_people(haltsweep, spec):
    result = haltsweep("plan", spec())
    assert (result.code, result.err) == (0, "")
    assert "8 trials" in result.out
    assert re.search(r"model\.gate +true +-> +false", result.out)
    assert "With 2 seeds and 1 comparison there can be no verdict: 3 seeds are the fewest." in result.out


def test_a_plan_says_how_many_published_rows_changes_leave_out(haltsweep, spec):
    row = "{arm: minus-gate, metric: accuracy, values: {near-iid: 0.5}, source: a}"
    name = spec(a=("baseline:\n", f"published:\n  - {row}\nbaseline:\n"))
    assert "published row" not in haltsweep("plan", name).out
    shown = " ".join(haltsweep("plan", name, "--profile", "short").out.split())
    assert "1 published row is left out: overrides or the profile change the arm's training" in shown


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--profile", "shrt"), "no profile named 'shrt'. Did you mean 'short'? Known: short"),
        (("baseline.train.stepz=1",), "Did you mean"),
        (("steps",), "an override must be key=value, got 'steps'"),
    ],
)
def test_wrong_overrides_are_bad_input(haltsweep, spec, arguments, expected):
    result = haltsweep("plan", spec(), *arguments)
    assert (result.code, result.out) == (2, "")
    assert expected in result.err


def test_a_calibrated_plan_tells_times(haltsweep, spec):
    found = json.loads(haltsweep("plan", spec(), "--profile", "short", "--calibrate", "--json").out)
    assert all(price["seconds_per_step"] > 0 for price in found["prices"])
    plain = json.loads(haltsweep("plan", spec(), "--profile", "short", "--json").out)
    assert all(price["seconds_per_step"] is None for price in plain["prices"])


def test_a_plan_needs_no_data_but_tells_what_a_launch_would(haltsweep, spec, tmp_path):
    task = TINY[TINY.index("  task:") : TINY.index("  model:")]
    name = spec(a=(task, "  task: {name: lra_text, folder: aclImdb}\n"), b=("near-iid", "test"))
    result = haltsweep("plan", name)
    assert result.code == 0
    assert "8 trials" in result.out
    missing = "the data of lra_text cannot be read: folder must hold train/neg"
    assert f"launch will not start here: {missing}" in result.err.replace("\n", " ")
    assert haltsweep("check", name).code == 0
    refused = haltsweep("launch", name)
    assert (refused.code, missing in refused.err.replace("\n", " ")) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_plan_tells_what_this_machine_has_not(haltsweep, spec, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    changed = spec(), "resources.gpus=0.5", "baseline.train.precision=fp16"
    result = haltsweep("plan", *changed)
    assert (result.code, "8 trials" in result.out) == (0, True)
    said = " ".join(result.err.split())
    assert "launch will not start here: a trial must fit on one node: it needs cpus=1 and gpus=0.5" in said
    refused = haltsweep("launch", *changed, "--driver", "inline")
    assert refused.code == 2
    assert "train.precision 'fp16' must run on a CUDA device, and PyTorch finds none on this" in refused.err
    assert [path.name for path in tmp_path.iterdir()] == [changed[0]]


def test_a_plan_that_takes_long_is_told(haltsweep, spec, monkeypatch):
    monkeypatch.setattr(planning, "FIRST_S", 0.0)
    monkeypatch.setattr(waiting, "LOOK_S", 0.001)
    result = haltsweep("plan", spec())
    assert result.code == 0
    assert re.search(r"^planning: .*; Ctrl-C ends it, nothing is written$", result.err, re.MULTILINE)
