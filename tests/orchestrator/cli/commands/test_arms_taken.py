"""`haltsweep extend --arms` takes only the named arms of a spec."""

import pytest

from orchestrator.cli.commands.extend import arm_overrides
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
def larger_spec(tmp_path):
    path = tmp_path / "more.yaml"
    head, _, tail = TINY.partition("arms:\n")
    path.write_text(head + ARMS + tail[tail.index("search:\n") :])
    return path


def test_arms_option_takes_only_the_named_arms(tmp_path, larger_spec):
    folder = SweepFolder(tmp_path)
    folder.spec.write_text(TINY)
    overrides = [parse(line) for line in arm_overrides(larger_spec, " deep, wide,deep", folder)]
    assert [(override.key, override.value["set"]) for override in overrides] == [
        ("arms.deep", {"model.max_layers": 3}),
        ("arms.wide", {"model.width": 32}),
    ]
    assert overrides[1].value["why"] == "more room: 100%, [twice]"
    assert overrides[1].value["drop"] == ["train.lr"]


def test_arms_option_refuses_unknown_arms_and_a_missing_spec(tmp_path, larger_spec):
    with pytest.raises(InputError, match=r"'wid'.*'wide'"):
        arm_overrides(larger_spec, "deep,wid", SweepFolder(tmp_path))
    with pytest.raises(InputError, match=r"SPEC.*'wide'"):
        arm_overrides(None, "wide", SweepFolder(tmp_path))
