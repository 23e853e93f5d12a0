"""The number of trials that fit on nodes, and the check of this machine's resources."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.execution.slots import count_slots, missing_gpus, require_local_resources, require_room
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


@pytest.mark.parametrize("arm", [HALF, FIXED], ids=["drawn", "fixed"])
def test_half_precision_needs_a_gpu(set_gpu_count, arm):
    plan = make_plan([make_arm("one"), arm])
    set_gpu_count(0)
    with pytest.raises(InputError):
        require_local_resources(plan, "inline", 1)
    require_local_resources(make_plan([WIDE]), "inline", 1)
    set_gpu_count(1)
    require_local_resources(plan, "inline", 1)


def test_trial_must_fit_on_this_machine(set_gpu_count):
    set_gpu_count(1)
    plan = make_plan([make_arm("one")], resources=Resources(cpus=2, gpus=2))
    with pytest.raises(InputError):
        require_local_resources(plan, "ray", 4)
    require_local_resources(plan, "inline", 4)


@pytest.mark.parametrize(
    ("requested", "available", "driver", "is_missing"),
    [(2.0, 1, "inline", True), (0.25, 1, "inline", False), (1.0, 0, "ray", False)],
)
def test_inline_driver_reports_missing_gpus(set_gpu_count, requested, available, driver, is_missing):
    set_gpu_count(available)
    message = missing_gpus(make_plan([WIDE], resources=Resources(gpus=requested)), driver)
    assert bool(message) is is_missing


@pytest.mark.parametrize(("max_concurrent", "expected"), [(None, 8), (3, 3), (9, 8)])
def test_spec_limits_the_number_of_simultaneous_trials(max_concurrent, expected):
    nodes = [{"CPU": 4.0}, {"CPU": 4.0}]
    assert count_slots(nodes, Resources(max_concurrent=max_concurrent)) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Resources(cpus=3), 2),
        (Resources(cpus=9), 0),
        (Resources(cpus=0.5, gpus=0.25), 8),
        (Resources(cpus=1, gpus=0.3), 6),
        (Resources(cpus=1, gpus=2), 1),
        (Resources(cpus=1, gpus=3), 0),
    ],
)
def test_number_of_trials_that_fit_on_one_node(wanted, expected):
    assert count_slots([NODE], wanted) == expected


def test_trial_never_spans_nodes():
    assert count_slots([{"CPU": 3.0}, {"CPU": 3.0}], Resources(cpus=2)) == 2
    assert count_slots([{"CPU": 8.0}, {"CPU": 8.0, "GPU": 1.0}], Resources(cpus=1, gpus=0.5)) == 2
    assert count_slots([], Resources()) == 0


@given(total=st.integers(0, 64), parts=st.integers(1, 10_000))
def test_fractions_are_counted_as_ray_counts_them(total, parts):
    """Ray counts in ten-thousandths, so float rounding neither loses nor adds a slot."""
    wanted = Resources(cpus=parts / 10_000)
    assert count_slots([{"CPU": float(total)}], wanted) == total * 10_000 // parts


def test_missing_room_raises_an_error():
    nodes = [{"CPU": 2.0}, {"CPU": 4.0, "GPU": 1.0}]
    assert require_room(nodes, Resources(cpus=4)) == 1
    with pytest.raises(InputError):
        require_room(nodes, Resources(cpus=8))
