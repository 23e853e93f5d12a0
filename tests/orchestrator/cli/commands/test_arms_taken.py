"""`haltsweep extend --arms` takes only the named arms of a spec."""

import pytest

from orchestrator.cli.commands.extend import copy_arms
from orchestrator.errors import InputError
from orchestrator.identity import SweepFolder
from orchestrator.spec.overrides import parse
from tests.support.processes.commands import TINY

ARMS = """\
arms:
  minus-gate: {why: plain feed-forward block, set: {model.gate: false}}
  wide: {why: "more room: 100%, [twice]", set: {model.width: 32}, drop: [train.lr]}
  deep: {why: more layers, set: {model.max_layers: 3}}
"""


@pytest.fixture
def folder(tmp_path):
    sweep_folder = SweepFolder(tmp_path / "tiny")
    sweep_folder.root.mkdir()
    sweep_folder.spec.write_text(TINY)
    return sweep_folder


@pytest.fixture
def larger_spec(tmp_path):
    path = tmp_path / "more.yaml"
    head, _, tail = TINY.partition("arms:\n")
    tail = tail[tail.index("search:\n") :].replace("seeds: [101, 102]", "seeds: [1, 2, 3]")
    path.write_text(head + ARMS + tail)
    return path


def test_arms_option_takes_only_the_named_arms(folder, larger_spec, capsys):
    overrides = [parse(line) for line in copy_arms(larger_spec, " deep, wide,deep", folder)]
    assert [(override.key, override.value["set"]) for override in overrides] == [
        ("arms.deep", {"model.max_layers": 3}),
        ("arms.wide", {"model.width": 32}),
    ]
    assert overrides[1].value["why"] == "more room: 100%, [twice]"
    assert overrides[1].value["drop"] == ["train.lr"]
    assert capsys.readouterr().err == ""


def test_different_baseline_of_the_taken_arms_is_reported(folder, larger_spec, capsys):
    larger_spec.write_text(larger_spec.read_text().replace("steps: 4", "steps: 8"))
    assert len(copy_arms(larger_spec, "wide", folder)) == 1
    output = " ".join(capsys.readouterr().err.split())
    assert "baseline of tiny" in output
    assert "train.steps: 4 -> 8" in output


def test_arms_option_refuses_unknown_arms_and_a_missing_spec(folder, larger_spec):
    with pytest.raises(InputError, match=r"'wid'.*'wide'"):
        copy_arms(larger_spec, "deep,wid", folder)
    with pytest.raises(InputError, match=r"SPEC.*'wide'"):
        copy_arms(None, "wide", folder)
    with pytest.raises(InputError, match=r"SPEC.*' ,'"):
        copy_arms(larger_spec, " ,", folder)
