"""How many trials fit on nodes, and whether this machine has what a sweep asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.execution.slots import (
    count_slots,
    local_resources,
    missing_gpus,
    require_local_resources,
    require_room,
)
from orchestrator.spec.section import Resources
from search_spaces.dimensions import Choice, Dimension, Fixed, Space
from tests.support.specs.plans import make_arm, make_plan

HALF = make_arm("half", Space((Dimension("train.precision", Choice(("fp32", "fp16"))),)))
FIXED = make_arm("fixed", Space((Dimension("train.precision", Fixed("fp16")),)))
WIDE = make_arm("wide", Space((Dimension("train.precision", Choice(("fp32", "bf16"))),)))
NODE = {"CPU": 8.0, "GPU": 2.0, "memory": 1e9}


@pytest.fixture
def gpus(monkeypatch):
    """How many PyTorch may use."""

    def have(count):
        monkeypatch.setattr("torch.cuda.device_count", lambda: count)

    return have


def refusal(*asked):
    """What is said against it; None if it may be run."""
    try:
        require_local_resources(*asked)
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("arm", [HALF, FIXED], ids=["drawn", "fixed"])
@pytest.mark.parametrize("driver", ["ray", "inline"])
def test_half_precision_needs_a_device(gpus, arm, driver):
    plan = make_plan([make_arm("one"), arm])
    gpus(0)
    with pytest.raises(InputError):
        require_local_resources(plan, driver, 1)
    gpus(1)
    assert refusal(plan, driver, 1) is None


def test_other_precisions_need_none(gpus):
    gpus(0)
    assert refusal(make_plan([WIDE]), "inline", None) is None


def test_a_trial_must_fit_on_this_machine(gpus):
    gpus(1)
    plan = make_plan([make_arm("one")], resources=Resources(cpus=2, gpus=2))
    with pytest.raises(InputError):
        require_local_resources(plan, "ray", 4)
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
    assert count_slots(nodes, Resources(max_concurrent=most)) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Resources(cpus=1), 8),
        (Resources(cpus=3), 2),
        (Resources(cpus=9), 0),
        (Resources(cpus=0.5), 16),
        (Resources(cpus=0.1), 80),
        (Resources(cpus=1, gpus=0.25), 8),
        (Resources(cpus=0.5, gpus=0.25), 8),
        (Resources(cpus=1, gpus=0.3), 6),
        (Resources(cpus=1, gpus=1), 2),
        (Resources(cpus=1, gpus=2), 1),
        (Resources(cpus=1, gpus=3), 0),
        (Resources(cpus=0.01, gpus=0.5), 4),
        (Resources(cpus=5, gpus=0.5), 1),
    ],
)
def test_what_fits_on_one_node(wanted, expected):
    assert count_slots([NODE], wanted) == expected


def test_a_trial_never_spans_nodes():
    assert count_slots([{"CPU": 3.0}, {"CPU": 3.0}], Resources(cpus=2)) == 2
    assert count_slots([{"CPU": 8.0}, {"CPU": 8.0, "GPU": 1.0}], Resources(cpus=1, gpus=0.5)) == 2
    assert count_slots([], Resources()) == 0


@given(
    total=st.integers(0, 64),
    parts=st.integers(1, 10_000),
)
def test_fractions_are_counted_as_ray_counts_them(total, parts):
    """In ten-thousandths: rounding of floats neither loses a slot nor invents one."""
    wanted = Resources(cpus=parts / 10_000)
    assert count_slots([{"CPU": float(total)}], wanted) == total * 10_000 // parts


def test_no_room_is_an_error():
    nodes = [{"CPU": 2.0}, {"CPU": 4.0, "GPU": 1.0}]
    assert require_room(nodes, Resources(cpus=4)) == 1
    with pytest.raises(InputError):
        require_room(nodes, Resources(cpus=8))


def test_this_machine_has_what_it_was_given():
    assert local_resources(3)["CPU"] == 3
    assert local_resources(None)["CPU"] >= 1
