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
    shown = haltsweep("check", plain, rich)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == "plain.yaml: ok\nrich.yaml: ok (and with short)\n"


def test_all_files_are_looked_at(haltsweep, spec):
    shown = haltsweep(
        "check", spec("a.yaml", x=("trials_per_arm: 2", "trials_per_arm: two")), "none.yaml", spec()
    )
    assert shown.code == 2
    assert shown.out == "tiny.yaml: ok (and with short)\n"
    assert shown.err.splitlines() == [
        "a.yaml:14: search.trials_per_arm: must be an integer >= 1, got the text 'two'",
        "none.yaml: cannot be read: no such file or directory",
    ]


def test_a_missing_spec_is_answered_with_the_similar_one(haltsweep, spec):
    spec("digits.yaml")
    for command in ("check", "plan", "launch"):
        shown = haltsweep(command, "digit.yaml")
        assert (shown.code, shown.out) == (2, "")
        assert "digits.yaml" in shown.err
    assert "digits.yaml" not in haltsweep("plan", "other.yaml").err


def test_an_override_is_no_spec(haltsweep, spec):
    answer = haltsweep("check", spec(), "search.seed=1")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "check accepts only spec files, got the text 'search.seed=1'; give overrides with a single spec: "
        "`haltsweep plan SPEC KEY=VALUE`\n"
    )


def test_faults_come_in_the_order_of_their_lines_and_once(haltsweep, spec):
    name = spec(
        a=("width: 16", "widht: 16"), b=("gate: false", "gaet: false"), c=("model.gaet", "model.gaet")
    )
    shown = haltsweep("check", name)
    assert shown.code == 2
    lines = [int(line.split(":")[1]) for line in shown.err.splitlines()]
    assert lines == sorted(lines)
    assert len(set(shown.err.splitlines())) == len(lines)


def test_a_fault_of_a_profile_alone_names_it(haltsweep, spec):
    shown = haltsweep("check", spec(a=("baseline.train.steps: 2", "baseline.model.heads: 3")))
    assert shown.code == 2
    assert shown.err.count("\n") >= 1
    assert all(line.endswith("(with the profile 'short')") for line in shown.err.splitlines())


def test_a_fault_of_the_plan_is_not_told_again_for_each_profile(haltsweep, spec):
    shown = haltsweep("check", spec(a=("set: {model.gate: false}", "set: {model.gate: true}")))
    assert shown.code == 2
    assert len(shown.err.splitlines()) == 1
    assert "minus-gate" in shown.err
    assert "with the profile" not in shown.err


def test_plan_takes_overrides_and_profiles_in_this_order(haltsweep, spec):
    shown = haltsweep(
        "plan", spec(), "confirm.seeds=[9]", "arms.minus-gate.why=because", "--profile", "short", "--json"
    )
    assert shown.code == 0
    found = json.loads(shown.out)
    assert found["confirm"]["seeds"] == [9]
    assert found["arms"][0]["settings"]["train"]["steps"] == 2
    assert found["arms"][1]["why"] == "because"


def test_plan_for_people(haltsweep, spec):
    shown = haltsweep("plan", spec())
    assert (shown.code, shown.err) == (0, "")
    assert "8 trials" in shown.out
    assert re.search(r"model\.gate +true +-> +false", shown.out)
    assert "With 2 seeds and 1 comparison there can be no verdict: 3 seeds are the fewest." in shown.out


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
    answer = haltsweep("plan", spec(), *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert expected in answer.err


def test_a_calibrated_plan_tells_times(haltsweep, spec):
    found = json.loads(haltsweep("plan", spec(), "--profile", "short", "--calibrate", "--json").out)
    assert all(price["seconds_per_step"] > 0 for price in found["prices"])
    plain = json.loads(haltsweep("plan", spec(), "--profile", "short", "--json").out)
    assert all(price["seconds_per_step"] is None for price in plain["prices"])


def test_a_plan_needs_no_data_but_tells_what_a_launch_would(haltsweep, spec, tmp_path):
    task = TINY[TINY.index("  task:") : TINY.index("  model:")]
    name = spec(a=(task, "  task: {name: lra_text, folder: aclImdb}\n"), b=("near-iid", "test"))
    shown = haltsweep("plan", name)
    assert shown.code == 0
    assert "8 trials" in shown.out
    missing = "the data of lra_text cannot be read: folder must hold train/neg"
    assert f"launch will not start here: {missing}" in shown.err.replace("\n", " ")
    assert haltsweep("check", name).code == 0
    refused = haltsweep("launch", name)
    assert (refused.code, missing in refused.err.replace("\n", " ")) == (2, True)
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_plan_tells_what_this_machine_has_not(haltsweep, spec, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    changed = spec(), "resources.gpus=0.5", "baseline.train.precision=fp16"
    shown = haltsweep("plan", *changed)
    assert (shown.code, "8 trials" in shown.out) == (0, True)
    said = " ".join(shown.err.split())
    assert "launch will not start here: a trial must fit on one node: it needs cpus=1 and gpus=0.5" in said
    refused = haltsweep("launch", *changed, "--driver", "inline")
    assert refused.code == 2
    assert "train.precision 'fp16' must run on a CUDA device, and PyTorch finds none on this" in refused.err
    assert [each.name for each in tmp_path.iterdir()] == [changed[0]]


def test_a_plan_that_takes_long_is_told(haltsweep, spec, monkeypatch):
    monkeypatch.setattr(planning, "FIRST_S", 0.0)
    monkeypatch.setattr(waiting, "LOOK_S", 0.001)
    shown = haltsweep("plan", spec())
    assert shown.code == 0
    assert re.search(r"^planning: .*; Ctrl-C ends it, nothing is written$", shown.err, re.MULTILINE)
