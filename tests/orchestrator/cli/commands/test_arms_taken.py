"""Arms of a spec that a sweep is extended by: those that are named, and nothing else of it."""

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
    made = SweepFolder(tmp_path / "tiny")
    made.root.mkdir()
    made.spec.write_text(TINY)
    return made


@pytest.fixture
def more(tmp_path):
    path = tmp_path / "more.yaml"
    head, _, rest = TINY.partition("arms:\n")
    rest = rest[rest.index("search:\n") :].replace("seeds: [101, 102]", "seeds: [1, 2, 3]")
    path.write_text(head + ARMS + rest)
    return path


def test_only_the_arms_that_are_named_are_taken(folder, more, capsys):
    found = [parse(copy_arm) for copy_arm in copy_arms(more, " deep, wide,deep", folder)]
    assert [(each.key, each.value["set"]) for each in found] == [
        ("arms.deep", {"model.max_layers": 3}),
        ("arms.wide", {"model.width": 32}),
    ]
    assert found[1].value["why"] == "more room: 100%, [twice]"
    assert found[1].value["drop"] == ["train.lr"]
    assert capsys.readouterr().err == ""


def test_another_baseline_beside_them_is_told(folder, more, capsys):
    more.write_text(more.read_text().replace("steps: 4", "steps: 8"))
    assert len(copy_arms(more, "wide", folder)) == 1
    output = " ".join(capsys.readouterr().err.split())
    assert "the arms change the baseline of tiny, which differs" in output
    assert "train.steps: 4 -> 8" in output


def test_arms_that_are_not_there_or_no_spec(folder, more):
    with pytest.raises(
        InputError, match=r"--arms must name arms under `arms` of .*, got 'wid'\. Did you mean"
    ):
        copy_arms(more, "deep,wid", folder)
    with pytest.raises(InputError, match=r"--arms needs a SPEC .*got 'wide' without SPEC; without a spec"):
        copy_arms(None, "wide", folder)
    with pytest.raises(InputError, match=r"--arms needs a SPEC .*got ' ,'; without a spec"):
        copy_arms(more, " ,", folder)
