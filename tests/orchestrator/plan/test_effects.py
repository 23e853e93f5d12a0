"""Whether two systems differ is found without the passes that cannot change the answer."""

from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.plan.declared import Sweep
from orchestrator.plan.effects import differ, differ_at_once, learn_otherwise_at_once
from orchestrator.plan.moved_weights import POINTS
from orchestrator.plan.probe import Probe
from orchestrator.plan.probed_model import BackwardPass, ForwardPass
from orchestrator.plan.settings import System, checked
from orchestrator.plan.structure import tree_difference
from search_spaces.paths import with_value

UNIVERSAL = {"name": "universal", "width": 16, "heads": 2, "max_layers": 4}
CHUNKED = {"name": "tlb", "width": 16, "heads": 2, "layers": 2, "memory": {"slots": 4}}


class _Counting(Probe):
    """Remembers which passes were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.points: set[int] = set()
        self.backward: set[int] = set()

    def forward(self, system: System, point: int = 0) -> ForwardPass:
        self.points.add(point)
        return super().forward(system, point)

    def gradient(self, system: System, point: int = 0) -> BackwardPass:
        self.backward.add(point)
        return super().gradient(system, point)


class _Tree:
    """Modules alone."""

    def __init__(self, *names: str) -> None:
        self.modules = dict.fromkeys(names, "Linear")
        self.shapes: Mapping[str, tuple[int, ...]] = {}


def _system(model: Mapping[str, Any], path: str, value: Any) -> System:
    raw = {"task": {"name": "listops"}, "model": model, "train": {"steps": 100, "batch_size": 4}}
    found = checked(with_value(raw, path, value))
    assert isinstance(found, System), found
    return found


def test_costs_too_small_for_the_loss_to_show_need_one_backward_pass() -> None:
    before, after = (_system(UNIVERSAL, "train.ponder_weight", value) for value in (1e-9, 2e-9))
    probe = _Counting()
    assert differ(probe, before, after, Sweep())
    # One model, two weights of its cost: that the cost has a gradient is asked once, at the initial weights.
    assert (probe.points, probe.backward) == ({0}, {0})


def test_weights_of_a_cost_without_a_gradient_need_no_backward_pass() -> None:
    fixed = {**UNIVERSAL, "width": 128, "halt": None}
    before, after = (_system(fixed, "train.ponder_weight", value) for value in (0.1, 0.2))
    probe = _Counting()
    assert not differ(probe, before, after, Sweep())
    assert probe.backward == set()
    apart = [Probe() for _ in range(2)]  # each runs its own backward pass
    one, other = (probe.gradient(each) for probe, each in zip(apart, (before, after), strict=True))
    assert one == other
    halting, again = (_system(UNIVERSAL, "train.ponder_weight", value) for value in (0.1, 0.2))
    assert not probe.pull_alike(halting, again, 0)


def test_chunks_longer_than_short_inputs_show_before_other_weights_are_tried() -> None:
    before, after = (_system(CHUNKED, "model.chunk", {"size": size}) for size in (16, 32))
    probe = _Counting()
    assert differ(probe, before, after, Sweep())
    assert probe.points == {0}
    assert differ_at_once(Probe(), before, after)


def test_what_cannot_be_read_at_length_may_still_show_elsewhere() -> None:
    class Unreadable(_Counting):
        def reading(self, system: System, point: int, *_: int, **__: int | None) -> tuple[float, ...]:
            raise ValueError(f"must be read, got {point=}")

    before, after = (_system(UNIVERSAL, "model.halt", {"threshold": value}) for value in (0.01, 0.02))
    probe = Unreadable()
    assert not differ_at_once(probe, before, after)
    assert differ(probe, before, after, Sweep())
    assert len(probe.points) > 1, "it must show at other weights alone, for this test to try anything"


def test_bounds_on_layers_show_where_halting_is_late() -> None:
    """At the initial weights both halt before either bound; nothing is run at the weights after them."""
    halting = {**UNIVERSAL, "halt": {"threshold": 0.9}, "early_exit": "batch"}
    before, after = (_system(halting, "model.max_layers", most) for most in (20, 30))
    probe = _Counting()
    assert probe.inference(before).layers == probe.inference(after).layers
    assert differ(probe, before, after, Sweep())
    assert probe.points <= {0}


def test_another_weight_of_a_cost_teaches_otherwise_where_it_has_a_gradient() -> None:
    halting, fixed = UNIVERSAL, {**UNIVERSAL, "halt": None}
    for model, learns in ((halting, True), (fixed, False)):
        before, after = (_system(model, "train.ponder_weight", value) for value in (0.1, 0.5))
        probe = Probe()
        assert learn_otherwise_at_once(probe, before, after) is learns
        assert differ(probe, before, after, Sweep()) is learns
    before, after = (_system(UNIVERSAL, "model.max_layers", value) for value in (2, 3))
    assert not learn_otherwise_at_once(Probe(), before, after), "two models: said elsewhere"


FIXED = {
    "universal": {"halt": None, "max_layers": 3},
    "gutlb": {"halt": None, "max_layers": 3},
    "tlb": {"layers": 2},
    "transformer": {"layers": 2},
    "looped": {"loops": 3, "heads": 2},
    "sut": {"halt": None, "max_layers": 3},
}


@pytest.mark.parametrize("name", FIXED)
def test_where_nothing_halts_a_cost_has_a_gradient_at_all_weights_or_at_none(name: str) -> None:
    """So that it is looked for at the first of them alone."""
    system = _system({"name": name, "width": 16, **FIXED[name]}, "train.batch_size", 8)
    probe = Probe()
    structure = probe.structure(system)
    assert structure.depth_min == structure.depth_max
    assert len({probe._run(system, point).idle_weights for point in range(POINTS)}) == 1


def test_only_outermost_modules_are_named() -> None:
    before, after = _Tree("a"), _Tree("a", "a.b", "a.b.c", "ab", "ab.c.d", "e.f")
    assert tree_difference(before, after) == ("a.b: Linear", "ab: Linear", "e.f: Linear")
