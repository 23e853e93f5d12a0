"""How many trials fit: against counting by hand and against placing them one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.execution.slots import require_room, slots, this_machine
from orchestrator.spec.section import Resources

NODE = {"CPU": 8.0, "GPU": 2.0, "memory": 1e9}


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
    assert slots([NODE], wanted) == expected


def test_a_trial_never_spans_nodes():
    assert slots([{"CPU": 3.0}, {"CPU": 3.0}], Resources(cpus=2)) == 2
    assert slots([{"CPU": 8.0}, {"CPU": 8.0, "GPU": 1.0}], Resources(cpus=1, gpus=0.5)) == 2
    assert slots([], Resources()) == 0


@given(
    total=st.integers(0, 64),
    parts=st.integers(1, 10_000),
)
def test_fractions_are_counted_as_ray_counts_them(total, parts):
    """In ten-thousandths: rounding of floats neither loses a slot nor invents one."""
    wanted = Resources(cpus=parts / 10_000)
    assert slots([{"CPU": float(total)}], wanted) == total * 10_000 // parts


def test_no_room_says_what_there_is_and_what_to_do():
    nodes = [{"CPU": 2.0}, {"CPU": 4.0, "GPU": 1.0}]
    assert require_room(nodes, Resources(cpus=4)) == 1
    with pytest.raises(
        InputError,
        match=r"cpus=8 and gpus=0, and there is a node with CPU=2 GPU=0; a node with CPU=4 GPU=1; ask",
    ):
        require_room(nodes, Resources(cpus=8))


def test_this_machine_has_what_it_was_given():
    assert this_machine(3)["CPU"] == 3
    assert this_machine(None)["CPU"] >= 1
