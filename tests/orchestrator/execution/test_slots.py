"""The number of trials that fit on nodes, and the check of this machine's resources."""

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
def set_gpu_count(monkeypatch):
    """Return a function that sets the number of GPUs that PyTorch finds."""

    def set_count(count):
        monkeypatch.setattr("torch.cuda.device_count", lambda: count)

    return set_count


def refusal(*arguments):
    """Return the error message of the check, or None without an error."""
    try:
        require_local_resources(*arguments)
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("arm", [HALF, FIXED], ids=["drawn", "fixed"])
@pytest.mark.parametrize("driver", ["ray", "inline"])
def test_half_precision_needs_a_gpu(set_gpu_count, arm, driver):
    plan = make_plan([make_arm("one"), arm])
    set_gpu_count(0)
    with pytest.raises(InputError):
        require_local_resources(plan, driver, 1)
    set_gpu_count(1)
    assert refusal(plan, driver, 1) is None


def test_other_precisions_need_no_gpu(set_gpu_count):
    set_gpu_count(0)
    assert refusal(make_plan([WIDE]), "inline", None) is None


def test_trial_must_fit_on_this_machine(set_gpu_count):
    set_gpu_count(1)
    plan = make_plan([make_arm("one")], resources=Resources(cpus=2, gpus=2))
    with pytest.raises(InputError):
        require_local_resources(plan, "ray", 4)
    assert refusal(plan, "inline", 4) is None


@pytest.mark.parametrize(
    ("requested", "available", "driver", "expected"),
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
def test_inline_driver_reports_missing_gpus(set_gpu_count, requested, available, driver, expected):
    set_gpu_count(available)
    message = missing_gpus(make_plan([WIDE], resources=Resources(gpus=requested)), driver)
    assert message.startswith(expected)
    assert bool(message) == bool(expected)


@pytest.mark.parametrize(("max_concurrent", "expected"), [(None, 8), (1, 1), (3, 3), (9, 8)])
def test_spec_limits_the_number_of_simultaneous_trials(max_concurrent, expected):
    nodes = [{"CPU": 4.0}, {"CPU": 4.0}]
    assert count_slots(nodes, Resources(max_concurrent=max_concurrent)) == expected


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
def test_number_of_trials_that_fit_on_one_node(wanted, expected):
    assert count_slots([NODE], wanted) == expected


def test_trial_never_spans_nodes():
    assert count_slots([{"CPU": 3.0}, {"CPU": 3.0}], Resources(cpus=2)) == 2
    assert count_slots([{"CPU": 8.0}, {"CPU": 8.0, "GPU": 1.0}], Resources(cpus=1, gpus=0.5)) == 2
    assert count_slots([], Resources()) == 0


@given(
    total=st.integers(0, 64),
    parts=st.integers(1, 10_000),
)
def test_fractions_are_counted_as_ray_counts_them(total, parts):
    """Ray counts in ten-thousandths, so float rounding neither loses nor adds a slot."""
    wanted = Resources(cpus=parts / 10_000)
    assert count_slots([{"CPU": float(total)}], wanted) == total * 10_000 // parts


def test_missing_room_raises_an_error():
    nodes = [{"CPU": 2.0}, {"CPU": 4.0, "GPU": 1.0}]
    assert require_room(nodes, Resources(cpus=4)) == 1
    with pytest.raises(InputError):
        require_room(nodes, Resources(cpus=8))


def test_local_resources_have_the_given_number_of_cpus():
    assert local_resources(3)["CPU"] == 3
    assert local_resources(None)["CPU"] >= 1
