"""What a sweep is to run with: too little of it is refused before anything is written."""

import pytest

from orchestrator.errors import InputError
from orchestrator.execution.slots import missing_gpus, require_means, slots
from orchestrator.spec.section import Resources
from search_spaces.dimensions import Choice, Dimension, Fixed, Space
from tests.support.specs.plans import make_arm, make_plan

HALF = make_arm("half", Space((Dimension("train.precision", Choice(("fp32", "fp16"))),)))
FIXED = make_arm("fixed", Space((Dimension("train.precision", Fixed("fp16")),)))
WIDE = make_arm("wide", Space((Dimension("train.precision", Choice(("fp32", "bf16"))),)))


@pytest.fixture
def gpus(monkeypatch):
    """How many PyTorch may use."""

    def have(count):
        monkeypatch.setattr("torch.cuda.device_count", lambda: count)

    return have


def refusal(*asked):
    """What is said against it; None if it may be run."""
    try:
        require_means(*asked)
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("arm", [HALF, FIXED], ids=["drawn", "fixed"])
@pytest.mark.parametrize("driver", ["ray", "inline"])
def test_half_precision_needs_a_device(gpus, arm, driver):
    plan = make_plan([make_arm("one"), arm])
    gpus(0)
    shown = rf"train.precision 'fp16' must run on a CUDA device, .* give {arm.name} another precision"
    with pytest.raises(InputError, match=shown):
        require_means(plan, driver, 1)
    gpus(1)
    assert refusal(plan, driver, 1) is None


def test_other_precisions_need_none(gpus):
    gpus(0)
    assert refusal(make_plan([WIDE]), "inline", None) is None


def test_a_trial_must_fit_on_this_machine(gpus):
    gpus(1)
    plan = make_plan([make_arm("one")], resources=Resources(cpus=2, gpus=2))
    with pytest.raises(InputError, match=r"asks for cpus=2 and gpus=2, and there is a node with CPU=4 GPU=1"):
        require_means(plan, "ray", 4)
    assert refusal(plan, "inline", 4) is None


@pytest.mark.parametrize(
    ("asked", "there", "driver", "expected"),
    [
        (
            1.0,
            0,
            "inline",
            "a trial asks for gpus=1, and PyTorch finds 0 on this machine: with --driver inline",
        ),
        (2.0, 1, "inline", "a trial asks for gpus=2, and PyTorch finds 1 on this machine"),
        (0.25, 1, "inline", ""),
        (0.0, 0, "inline", ""),
        (1.0, 0, "ray", ""),
    ],
)
def test_inline_says_what_it_goes_without(gpus, asked, there, driver, expected):
    gpus(there)
    found = missing_gpus(make_plan([WIDE], resources=Resources(gpus=asked)), driver)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


@pytest.mark.parametrize(("most", "expected"), [(None, 8), (1, 1), (3, 3), (9, 8)])
def test_no_more_trials_run_at_once_than_the_spec_allows(most, expected):
    nodes = [{"CPU": 4.0}, {"CPU": 4.0}]
    assert slots(nodes, Resources(max_concurrent=most)) == expected
